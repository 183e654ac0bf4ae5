"""A pod's node and cards: a scheduler extender's decisions, pure; the server is above them."""
