"""The two plain scores: fullest node first, emptiest node first."""

from typing import Literal

import numpy as np

from cluster.scheduler.states import Features
from cluster.scheduler.table import Doubles, Floats, Rows, Table

_MEMORY = Features._fields.index("memory_mib")
_FREE = Features._fields.index("free_mib")
_CORE = Features._fields.index("free_core_online")


def costs(table: Table, rows: Rows, scoring: Literal["binpack", "spread"]) -> Floats:
    """How much is free on each node: half of it GPUs, half CPU, each against the node of all that has most
    free. binpack takes the least of these, spread the most.
    """
    cpu = table.cpu[: len(table)]
    found = _of_most(free_gpus(table))[rows] + _of_most(cpu)[rows]
    return (found if scoring == "binpack" else -found).astype(np.float32)


def free_gpus(table: Table) -> Doubles:
    """Of each node; a GPU is as free as the scarcer of its memory and its core (of online containers)."""
    features = table.cards.features
    memory = features[:, _FREE] / np.maximum(features[:, _MEMORY], 1)
    free = np.minimum(memory, features[:, _CORE] / 100)
    # No card has no features.
    found: Doubles = free[table.states[: len(table)]].sum(axis=1)
    return found


def largest_card_mib(table: Table) -> int:
    return max(1, int(table.cards.features[:, _MEMORY].max()))


def _of_most(values: Doubles | Floats) -> Doubles | Floats:
    most = values.max(initial=0)
    return values / most if most > 0 else values
