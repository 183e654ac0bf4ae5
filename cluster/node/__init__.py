"""The node process: what kubelet and the API server hear of this node's GPUs, and mgpud of theirs."""
