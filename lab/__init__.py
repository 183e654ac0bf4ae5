"""NVIDIA's own kernel driver in a guest, on an emulated card: docs/driver-lab.md."""
