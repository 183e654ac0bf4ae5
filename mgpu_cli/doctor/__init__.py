"""`mgpu doctor`: a table of small checks, which look at the node through a Host and return findings."""
