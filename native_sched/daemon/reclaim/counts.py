"""Counts of moves since this mgpud began."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(kw_only=True)
class Counts:
    """failures: evictions and restorations that left a container where it was, or ended it."""

    evictions: int = 0
    restorations: int = 0
    failures: int = 0
    evicted_bytes: int = 0
    restored_bytes: int = 0
