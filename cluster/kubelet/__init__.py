"""Kubelet's protocols with its plugins, as published: protos, what protoc makes of them, calls."""
