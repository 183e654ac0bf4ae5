"""Which node and which cards a pod gets: a scheduler extender's decisions, pure; the server is above them."""
