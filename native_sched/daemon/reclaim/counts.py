"""Counts of moves since this mgpud began."""

from bisect import bisect_left
from dataclasses import dataclass, field


class Times:
    """How long something took, as a histogram has it. counts: one more than bounds, whose last has none."""

    def __init__(self, *bounds_s: float) -> None:
        self.bounds_s = bounds_s
        self.counts = [0] * (len(bounds_s) + 1)
        self.sum_s = 0.0

    def note(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds_s, seconds)] += 1
        self.sum_s += seconds


def _move() -> Times:
    return Times(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


def _away() -> Times:
    return Times(0.5, 1, 5, 15, 30, 60, 120, 300, 900, 3600)


@dataclass(kw_only=True)
class Counts:
    """failures: evictions and restorations that left a container where it was, or ended it. away: from the
    end of an eviction until the memory is back.
    """

    failures: int = 0
    evicted_bytes: int = 0
    restored_bytes: int = 0
    evicting: Times = field(default_factory=_move)
    restoring: Times = field(default_factory=_move)
    away: Times = field(default_factory=_away)
