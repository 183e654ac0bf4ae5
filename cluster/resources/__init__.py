"""What a node offers a cluster, and under which names."""
