"""`mgpu web`: a page that shows the node, and what serves it."""
