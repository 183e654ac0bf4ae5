"""The cubes of every command that the filter leaves alone.

A binary decision tree over the 32 bits of the command has leaves outside the set; each leaf is widened to a
largest cube that still touches nothing of the set, and cubes that the others cover are dropped. That is
thirty times fewer than the leaves. The cubes overlap, which is harmless: all of them become rules with the
same action.
"""

import random
from collections.abc import Sequence

from oci_specs.seccomp.cubes import covered, overlap, within

Cube = tuple[int, int]

COMMAND_BITS = 32
# Both found by trying: with the high bits first the tree is larger than at its best but widens to the fewest
# cubes, and among the seeds 1 to 24 this one gives 112 cubes where the others give 113 to 120.
BIT_ORDER: tuple[int, ...] = tuple(range(COMMAND_BITS - 1, -1, -1))
SEED = 11
WIDENINGS = 20


def leaves(cubes: Sequence[Cube]) -> list[Cube]:
    """Disjoint cubes of everything in none of cubes: the empty leaves of the decision tree."""
    found: list[Cube] = []

    def descend(depth: int, region: Cube, inside: Sequence[Cube]) -> None:
        if not inside:
            found.append(region)
            return
        if any(within(region, cube) for cube in inside):
            return
        while not any(mask >> BIT_ORDER[depth] & 1 for mask, _ in inside):
            depth += 1
        bit = 1 << BIT_ORDER[depth]
        for branch in (0, bit):
            child = (region[0] | bit, region[1] | branch)
            descend(depth + 1, child, [cube for cube in inside if overlap(child, cube)])

    descend(0, (0, 0), list(cubes))
    return found


def _widen(cube: Cube, avoid: Sequence[Cube], rng: random.Random) -> Cube:
    """A largest cube around cube that overlaps none of avoid; which one is up to rng."""
    bits = [1 << n for n in range(COMMAND_BITS) if cube[0] >> n & 1]
    rng.shuffle(bits)
    for bit in bits:
        wider = (cube[0] & ~bit, cube[1] & ~bit)
        if not any(overlap(wider, other) for other in avoid):
            cube = wider
    return cube


def complement(cubes: Sequence[Cube], seed: int = SEED) -> list[Cube]:
    """Cubes, each disjoint from all of cubes, that together hold every command that is in none of cubes.

    Sorted by datum, largest first, the order in which libseccomp tests them anyway.
    """
    rng = random.Random(seed)
    todo = sorted(leaves(cubes), key=lambda cube: -cube[0].bit_count())
    cover: list[Cube] = []
    while todo:
        widened = [_widen(todo[0], cubes, rng) for _ in range(WIDENINGS)]
        cube = max(
            widened, key=lambda wide: (sum(within(leaf, wide) for leaf in todo), -wide[0].bit_count())
        )
        cover.append(cube)
        todo = [leaf for leaf in todo if not within(leaf, cube)]
        if len(cover) % 5 == 0:
            todo = [leaf for leaf in todo if not covered(leaf, cover)]
    for cube in sorted(cover, key=lambda cube: -cube[0].bit_count()):
        others = [other for other in cover if other != cube]
        if covered(cube, others):
            cover = others
    return sorted(cover, key=lambda cube: (-cube[1], cube[0]))
