"""The create path: what stands between a container engine and runc.

Every module here runs on container starts, so imports are few and late, and nothing outside the standard
library and oci_specs is used.
"""
