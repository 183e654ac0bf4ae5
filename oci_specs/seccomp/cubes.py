"""Cubes: sets of integers that a masked comparison picks out, and the algebra that splitting a rule needs.

A cube is (mask, datum) with datum & ~mask == 0; x is in it when x & mask == datum. A bit of the mask is a
fixed bit.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    Cube = tuple[int, int]

ALL_BITS = 0xFFFFFFFFFFFFFFFF
LOW_BITS = 0xFFFFFFFF


def overlap(a: Cube, b: Cube) -> bool:
    """True if an integer is in both."""
    return not (a[1] ^ b[1]) & a[0] & b[0]


def within(a: Cube, b: Cube) -> bool:
    """Every integer in a is in b."""
    return not (b[0] & ~a[0] or (a[1] ^ b[1]) & b[0])


def meet(a: Cube, b: Cube) -> Cube | None:
    """The cube of what is in both, None when that is nothing."""
    if not overlap(a, b):
        return None
    return a[0] | b[0], a[1] | b[1]


def outside(cube: Cube) -> list[Cube]:
    """Disjoint cubes of everything that is not in cube, one per fixed bit, the lowest bit first."""
    mask, datum = cube
    parts = []
    fixed = 0
    while fixed != mask:
        bit = (mask ^ fixed) & -(mask ^ fixed)
        parts.append((fixed | bit, (datum & fixed) | (~datum & bit)))
        fixed |= bit
    return parts


def below(bound: int, mask: int) -> list[Cube]:
    """Disjoint cubes of the x with x & mask < bound. mask is 2**n - 1, bound is within 0..mask + 1."""
    parts = []
    for k in range(bound.bit_length()):
        bit = 1 << k
        if bound & bit:
            fixed = mask & ~(bit - 1)
            parts.append((fixed, (bound & ~bit) & fixed))
    return parts


def from_bound(bound: int, mask: int) -> list[Cube]:
    """Disjoint cubes of the x with x & mask >= bound. mask is 2**n - 1, bound is within 0..mask."""
    return [(fixed, ~datum & fixed) for fixed, datum in below(mask + 1 - bound, mask)]


def covered(cube: Cube, cover: Iterable[Cube]) -> bool:
    """Every integer in cube is in some cube of cover; exact, with exponential time only at worst."""
    near = [c for c in cover if overlap(cube, c)]
    if any(not c[0] & ~cube[0] for c in near):
        return True
    counts: dict[int, int] = {}
    for mask, _ in near:
        free = mask & ~cube[0]
        while free:
            bit = free & -free
            counts[bit] = counts.get(bit, 0) + 1
            free ^= bit
    if not counts:
        return False
    split = max(counts, key=lambda bit: (counts[bit], bit))
    mask, datum = cube
    return covered((mask | split, datum), near) and covered((mask | split, datum | split), near)
