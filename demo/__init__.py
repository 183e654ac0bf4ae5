"""`python -m demo`: the main job of mgpu on a private containerd and two simulated cards, shown and
checked."""
