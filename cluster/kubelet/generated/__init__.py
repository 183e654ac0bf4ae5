"""What `make protos` writes. Nothing here is written by hand."""
