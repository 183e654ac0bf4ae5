"""The ends of sockets to the holder and to containerd."""
