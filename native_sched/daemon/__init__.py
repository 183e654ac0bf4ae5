"""mgpud: control socket, inventory, placement, grants."""
