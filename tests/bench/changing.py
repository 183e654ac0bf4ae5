"""How much of a cluster the extender's decisions allocate where the mix of requests changes in the middle.

The first half of the requests of one of grid.py's mixes, then the second half of another's, beside first fit
and the extender's own binpack. The pairs are drawn at random from those with nodes of 8, the same ones each
time. Without the judge's folder there are no rows. MGPU_CHANGING_PAIRS: how many, a dozen unless given.
"""

import os
import random
import statistics
from collections.abc import Iterator
from typing import NamedTuple

from tests.bench import grid
from tests.bench.grid import AT, FIRST_ORDER, Allocated, Point
from tests.bench.rows import Row
from tests.bench.traces import FOLDER, OURS

PAIRS, SEED, ORDERS = int(os.environ.get("MGPU_CHANGING_PAIRS", "12")), 4, 10
PLAIN = ("first-fit", "binpack")


class Pair(NamedTuple):
    first: Point
    then: Point
    order: int


def pairs() -> list[Pair]:
    drawn = random.Random(SEED)
    points = [point for point in grid.points() if point.size == 8]
    found = []
    for _ in range(PAIRS):
        first, then = drawn.sample(points, 2)
        found.append(Pair(first, then, FIRST_ORDER + drawn.randrange(ORDERS)))
    return found


def gain(pair: Pair) -> Allocated:
    """What ours has above the better of the plain policies, in points."""
    there = grid.nodes(8)
    (first, ordered), (then, _) = (
        grid.judge().workload(grid.requests(point), there, AT[1] / 100, pair.order)
        for point in (pair.first, pair.then)
    )
    # Both lists begin with the same names.
    renamed = [{**one, "id": f"{one['id']}-then"} for one in then[len(then) // 2 :]]
    sequence = [*first[: len(first) // 2], *renamed]
    ours, *plain = (grid.play_in_order(sequence, ordered, policy) for policy in (OURS, *PLAIN))
    return ours[0] - max(each[0] for each in plain), ours[1] - max(each[1] for each in plain)


def measure() -> Iterator[Row]:
    if not (FOLDER / "mixes.py").exists():
        return
    above = [gain(pair) for pair in pairs()]
    for place, at in enumerate(AT):
        each = [found[place] for found in above]
        words = (
            f"{len(above)} mixes that change, {at} % asked for: mgpu above the better of first fit, binpack"
        )
        mean = statistics.mean(each)
        below = sum(found < -0.2 for found in each)
        yield Row(name=f"{words}, mean", value=mean, unit="points", better="higher")
        yield Row(name="the same, least", value=min(each), unit="points", target=-0.2, better="higher")
        yield Row(name="the same, mixes below -0.2", value=below, unit="", target=0)


if __name__ == "__main__":
    from tests.bench import rows

    rows.show(measure())
