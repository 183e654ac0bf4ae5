"""`mgpu doctor`: a table of small checks, each looking at the node through a Host and answering with findings."""
