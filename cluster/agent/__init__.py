"""The work of mgpu's pods on a node: put mgpu there, run its programs there, wait for its containers."""
