"""Which cards of a node a container gets: what mgpud decides by, and a cluster's scheduler before it."""
