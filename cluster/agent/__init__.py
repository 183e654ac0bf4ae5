"""The part of mgpu's pods that changes a node: put mgpu there, run its programs there, wait for its containers."""
