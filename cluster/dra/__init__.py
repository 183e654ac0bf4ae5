"""The driver of dynamic resource allocation (resource.k8s.io/v1): what it offers, and claims that it
prepares.
"""

DRIVER = "mgpu.dev"
