"""mgpu on kernels of several Debian releases, by its package, and as power is cut: docs/hosts.md."""
