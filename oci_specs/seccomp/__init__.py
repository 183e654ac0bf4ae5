"""Seccomp profiles of containers under a grant. Pure, standard library only: it runs on every container start."""

from __future__ import annotations

from oci_specs.seccomp.annotations import check_annotations
from oci_specs.seccomp.rewrite import rewrite

__all__ = ["check_annotations", "rewrite"]
