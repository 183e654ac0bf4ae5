"""Written by `make protos`, never by hand."""
