"""Releases: a package for each Debian release, and a folder that may lie anywhere."""
