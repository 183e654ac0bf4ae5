"""What there is on this node: cards, settings, the kernel's files."""
