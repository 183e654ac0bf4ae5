"""What a timeline consists of, from the arbiter's events or from a simulated card's account."""

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

Class = Literal["online", "offline", "unknown"]
Kind = Literal["run", "suspended", "hold", "drain"]
MarkKind = Literal["work", "suspend", "suspended", "resume", "running"]


class Lane(NamedTuple):
    """One container on one card. panel: the card, or an account of it, such as "GPU 0"."""

    panel: str
    label: str
    qos: Class


class Row(NamedTuple):
    """A stretch of time. run: it had work and the card; suspended: work and not the card; hold: the same, and
    only because online may come back; drain: it had work and the card, whatever online did, since it was
    evicted. why: the scheduler's word for it, if there is one.
    """

    lane: Lane
    start_ns: int
    end_ns: int
    kind: Kind
    why: str = ""


class Mark(NamedTuple):
    """An instant."""

    lane: Lane
    at_ns: int
    kind: MarkKind


class Timeline(NamedTuple):
    """From start_ns to end_ns. Lanes are in the order in which they are shown."""

    start_ns: int
    end_ns: int
    lanes: list[Lane]
    rows: list[Row]
    marks: list[Mark]


_CLASS_ORDER = {"online": 0, "offline": 1, "unknown": 2}
_NUMBER = re.compile(r"(\d+)")


def _place(lane: Lane) -> tuple[object, ...]:
    """Cards by number, online above offline, then by name."""
    panel = [
        (not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in _NUMBER.split(lane.panel)
    ]
    return panel, _CLASS_ORDER[lane.qos], lane.label


def timeline(
    rows: Sequence[Row],
    marks: Sequence[Mark] = (),
    *,
    lanes: Sequence[Lane] = (),
    start_ns: int | None = None,
    end_ns: int | None = None,
) -> Timeline:
    """The rows and marks cut to the window, which is all that they cover unless it is given.

    lanes: those that are shown even when nothing happened on them.
    """
    instants = [row.start_ns for row in rows] + [row.end_ns for row in rows] + [mark.at_ns for mark in marks]
    first = start_ns if start_ns is not None else min(instants, default=0)
    last = end_ns if end_ns is not None else max(instants, default=first)
    cut = [
        row._replace(start_ns=max(row.start_ns, first), end_ns=min(row.end_ns, last))
        for row in rows
        if row.start_ns < last and row.end_ns > first
    ]
    kept = [mark for mark in marks if first <= mark.at_ns <= last]
    found = {*lanes, *(row.lane for row in cut), *(mark.lane for mark in kept)}
    return Timeline(
        first,
        last,
        sorted(found, key=_place),
        sorted(cut, key=lambda row: row.start_ns),
        sorted(kept, key=lambda mark: mark.at_ns),
    )
