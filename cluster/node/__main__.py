from cluster.node.main import main

main(prog_name="mgpu-node")
