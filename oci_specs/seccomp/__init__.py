"""Seccomp profiles of containers under a grant; standard library only, since every start runs it."""

from oci_specs.seccomp.annotations import check_annotations
from oci_specs.seccomp.rewrite import rewrite

__all__ = ["check_annotations", "rewrite"]
