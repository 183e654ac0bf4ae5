"""containerd's own API over gRPC: bindings generated from protos/, a typed client, and the program that mgpud
has watch containerd for it.
"""
