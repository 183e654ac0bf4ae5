"""A simulated NVIDIA card: the card-and-driver process, its libcuda and libnvidia-ml, and what starts
them."""
