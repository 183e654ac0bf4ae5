"""Sets of time as sorted lists of (start, end) that do not touch."""

from collections.abc import Iterable

Span = tuple[int, int]


def union(spans: Iterable[Span]) -> list[Span]:
    found: list[Span] = []
    for start, end in sorted(spans):
        if start >= end:
            continue
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def common(one: list[Span], other: list[Span]) -> list[Span]:
    """What both have; each is sorted and its spans do not overlap."""
    found = []
    i = k = 0
    while i < len(one) and k < len(other):
        start, end = max(one[i][0], other[k][0]), min(one[i][1], other[k][1])
        if start < end:
            found.append((start, end))
        if one[i][1] < other[k][1]:
            i += 1
        else:
            k += 1
    return found


def without(one: list[Span], other: list[Span]) -> list[Span]:
    """What the first has and the other has not; each is sorted and its spans do not overlap."""
    found = []
    k = 0
    for start, end in one:
        while k < len(other) and other[k][1] <= start:
            k += 1
        at = k
        while at < len(other) and other[at][0] < end:
            if start < other[at][0]:
                found.append((start, other[at][0]))
            start = max(start, other[at][1])
            at += 1
        if start < end:
            found.append((start, end))
    return found
