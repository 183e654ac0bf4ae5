"""A node's offer to a cluster, and its names."""
