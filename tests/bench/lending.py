"""The scheduler extender where nodes lend memory (`mgpu.dev/reclaimable-memory-mib`), beside the same cluster
without lending.

Nodes of eight GPUs of 80 GiB, of which online uses more or less, with four pods each. Where memory is lent
hardly two of the GPUs are in one state.
"""

import json
import os
import random
from collections.abc import Iterator
from dataclasses import replace

from cluster.resources.inventory import ANNOTATION, Lending, read
from oci_specs.vocabulary import PLACEMENT, RECLAIMABLE_MEMORY
from tests.bench.extender import Run, running
from tests.bench.idle import ticks
from tests.bench.rows import Row, quantile
from tests.cluster.extender_support import CORE, MEMORY, Object, node, pod

CARDS, CARD_MIB, STEP_MIB = 8, 81_920, 1024
PODS_PER_NODE = 4
SIZES = (1, 1_000, 5_000)
LENDING = {"none": 0.0, "half": 0.5, "all": 1.0}
# Few enough for one node.
PODS = 20
# GiB and percent of the pods that online work comes in, GiB of those that offline work does.
ONLINE = ((4, 5), (6, 10), (8, 10), (8, 20), (12, 15), (16, 20), (16, 25), (24, 30))
OFFLINE = (2, 4, 8)


def measure() -> list[Row]:
    rows = []
    for size in SIZES:
        found = {name: _measured(size, share) for name, share in LENDING.items()}
        at = f"extender, {size:,} node{'s' if size > 1 else ''}"
        for name in ("half", "all"):
            rows += [
                Row(
                    name=f"{at}, {name} lending: {what}; beside: none lending",
                    value=value,
                    unit="ms",
                    baseline=found["none"][what],
                )
                for what, value in found[name].items()
            ]
    return rows


def _measured(size: int, share: float) -> dict[str, float]:
    """Of each pod, in ms."""
    dice = random.Random(size)
    nodes = [_node(f"node-{number:04}", dice, lends=number < size * share) for number in range(size)]
    with running(nodes, _bound(size, dice)) as run:
        # The first of each kind have their states learned.
        _place(run, dice)
        rounds = 10 if size > 1 else 1
        before = ticks(run.process.pid)
        took = [each for _ in range(rounds) for each in _place(run, dice)]
        cpu_s = (ticks(run.process.pid) - before) / os.sysconf("SC_CLK_TCK")
    return {
        "filter + prioritize + bind, p50": quantile(took, 0.5),
        "the same, p99": quantile(took, 0.99),
        "CPU of the extender for a pod": 1000 * cpu_s / (rounds * PODS),
    }


def _place(run: Run, dice: random.Random) -> list[float]:
    return run.place([_asked(dice) for _ in range(PODS)])


def _asked(dice: random.Random) -> Object:
    """Limits of the next pod."""
    if dice.random() < 0.3:
        return {RECLAIMABLE_MEMORY: str(1024 * dice.choice(OFFLINE))}
    gib, core = dice.choice(ONLINE)
    return {MEMORY: str(1024 * gib), CORE: str(core)}


def _node(name: str, dice: random.Random, *, lends: bool) -> Object:
    made = node(name, *[CARD_MIB] * CARDS, model="A100")
    used = [STEP_MIB * dice.randrange(60) for _ in range(CARDS)]
    if lends:
        found = read(made["metadata"]["annotations"][ANNOTATION])
        cards = tuple(
            replace(card, lending=Lending(online_mib=mib, kept_mib=0, lent_mib=0))
            for card, mib in zip(found.cards, used, strict=True)
        )
        made["metadata"]["annotations"][ANNOTATION] = replace(found, cards=cards).to_json()
    return made


def _bound(size: int, dice: random.Random) -> Iterator[Object]:
    for number in range(size):
        for card in dice.sample(range(CARDS), PODS_PER_NODE):
            gib, core = dice.choice(ONLINE)
            made = pod(f"bound-{number}-{card}", 1024 * gib, core, nodeName=f"node-{number:04}")
            where = {"main": [f"GPU-node-{number:04}-{card}"]}
            made["metadata"]["annotations"] = {PLACEMENT: json.dumps(where)}
            yield made


if __name__ == "__main__":
    from tests.bench import rows

    rows.show(measure())
