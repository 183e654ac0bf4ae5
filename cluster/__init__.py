"""The Kubernetes half of mgpu. It asks mgpud over the control protocol; mgpud knows nothing of Kubernetes."""
