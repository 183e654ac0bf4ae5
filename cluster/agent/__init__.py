"""What the cluster's pods do to a node: put mgpu there, run its programs there, wait for its containers."""
