"""Fragmentation gradient descent: a pod goes where it takes least from the pods that are still to come.

After "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent" (USENIX
ATC '23), which places each pod where the GPUs that a typical pod cannot use grow least. Its differences:

- What a kind of pod can use of a node is how many such pods it would hold: by its cards, and by its free CPU,
  in fractions, so that CPU is worth something long before the last of it goes.
- What a kind loses is weighed against what is left for it in the whole cluster, of the models that it
  may use. Where n pods of a kind would still fit, of g GPUs and c CPUs each, and p is its share of what
  comes, a placement costs the sum over all kinds of p · g ** several · (g / c) ** scarcity · Δn / n. So a
  kind with few places left is protected from those that can go elsewhere, and one that makes much of the CPU
  from those that make little of it. The scarcity is 1 where as much of the CPU is left as of the GPUs, 1
  more for each time that CPU will be out twice as soon, up to 6, and 1 less for each time that GPUs will
  be, down to 0. The paper weighs each kind by p · g alone. (tests/bench/grid.py measures what other
  constants would do.)
- Of the GPUs that all ask for, `several` is the part in requests of more than one. Where it is small, others
  fill what is left of a place that was broken; where it is 1, all of the place's GPUs are lost.
- In n a place counts by the root of the part that kinds no larger have of the GPUs asked for on its node:
  what larger ones will take is not left for smaller ones.
- Where pods end, what is free of a place counts by how soon it may be whole: a node that holds no pod of a
  kind holds as much of one as the eighth power of the part that is free, and `several` is at least 1.5. Both
  by the part of the pods that have ended of those that came. Else the nodes that a large kind needs are
  worth nothing to it once a single GPU of each is taken, and whole nodes are never free again.
- The mix of pods is learned (mix.py), not told, and pods that may use one model alone are supposed to come
  even where none did so far.
- Some pods are always supposed to come that ask for all GPUs of a node, of each size of node as often: else
  nothing keeps a node whole until the first of them, and a mix that changes finds every node broken.
"""

import math
from collections.abc import Sequence

import numpy as np

from cluster.scheduler import packing
from cluster.scheduler.kinds import TINY, Kinds, allowed_models
from cluster.scheduler.mix import Kind, Mix
from cluster.scheduler.states import Features, Ints, grown
from cluster.scheduler.table import Doubles, Floats, Rows, Table
from cluster.scheduler.ways import Ways
from oci_specs.request import Request

# A kind that asks for less CPU weighs no more: pods without a request of CPU would outweigh all others.
_LEAST_CPU_MILLI = 1000
_SCARCITY_MAX = 6.0
_SEVERAL_WHERE_PODS_END = 1.5
# So many of the pods are supposed to ask for whole nodes, as far as pods do not end: where they do, the nodes
# that run empty are kept already. More would cost where they never come.
_WHOLE_NODES = 0.04
# They have room with half of the CPU that there is for their GPUs: pods without a GPU take some of it.
_CPU_OF_WHOLE_NODES = 0.5
# `several` of theirs, at least: else a large place would be worth no more than a small one before they come.
_SEVERAL_OF_WHOLE_NODES = 0.5
_MEMORY = Features._fields.index("memory_mib")


class Fragmentation:
    """The cost of ways to place a pod. It empties the table's `changed`, so that a table has one of them.

    _times[state, request]: containers that a card in that state would hold. _cards[row, request]: the same of
    a node. _pods[row, kind]: pods that a node would hold. _open[row, kind]: the same, less what larger kinds
    will take. _left[model, kind]: of all nodes of a model what is open.
    """

    def __init__(self, table: Table, mix: Mix) -> None:
        self._table = table
        self._mix = mix
        self._version = -1
        self._kinds = Kinds([], 1.0)

    def losses(self, ways: Ways, cpu_milli: int) -> Floats:
        """The cost of each way; less is better, and all are 0 while no kind is known."""
        self._catch_up()
        kinds, table = self._kinds, self._table
        if not kinds.requests:
            return np.zeros(len(ways.rows), dtype=np.float32)
        # The states that the ways lead to may be new.
        self._learn_states()
        cards = self._cards[ways.rows]
        for card in range(ways.before.shape[1]):
            cards += self._times[ways.after[:, card]] - self._times[ways.before[:, card]]
        then = kinds.pods(cards, table.cpu[ways.rows] - np.float32(cpu_milli))
        lost: Floats = np.einsum(
            "ij,ij->i", self._pods[ways.rows] - then, self._weights[table.model[ways.rows]]
        )
        return lost

    def _catch_up(self) -> None:
        table = self._table
        rows = np.fromiter(table.changed, dtype=np.intp)
        if self._version != self._mix.version:
            self._version = self._mix.version
            found, whole_nodes = self._mix.kinds(), self._whole_nodes()
            if not self._kinds.takes(found, whole_nodes):
                self._learn_kinds(found, whole_nodes)
            self._kinds.turnover = self._mix.turnover
            rows = np.arange(len(table), dtype=np.intp)
        table.changed.clear()
        if len(rows) and self._kinds.requests:
            self._learn_states()
            self._learn_rows(rows)
            self._weigh()

    def _whole_nodes(self) -> list[Kind]:
        """Of each size of node with several cards the pod that asks for all of them."""
        table = self._table
        counts = table.count[: len(table)]
        cpu_milli = (
            _CPU_OF_WHOLE_NODES * float(table.cpu_all[: len(table)].sum()) / max(1, int(counts.sum()))
        )
        return [
            Kind(
                Request(qos="online", policy=None, count=size, whole_cards=True),
                round(size * cpu_milli),
                None,
            )
            for size in np.unique(counts[counts > 1]).tolist()
        ]

    def _learn_kinds(self, found: Sequence[tuple[Kind, float]], whole_nodes: Sequence[Kind]) -> None:
        states = self._table.cards
        in_use = states.in_use
        mib = (
            np.average(states.features[in_use, _MEMORY], weights=states.cards[in_use])
            if len(in_use)
            else 1.0
        )
        self._kinds = kinds = Kinds(found, float(mib), whole_nodes)
        self._times = np.zeros((256, len(kinds.requests)), dtype=np.float32)
        self._states_known = 0
        self._cards = np.zeros((0, len(kinds.requests)), dtype=np.float32)
        self._pods = np.zeros((0, len(kinds.request)), dtype=np.float32)
        self._open = np.zeros((0, len(kinds.request)), dtype=np.float32)
        self._model: Ints = np.zeros(0, dtype=np.int32)
        self._left = np.zeros((0, len(kinds.request)))
        self._allowed = allowed_models(kinds.allowed, [])

    def _learn_states(self) -> None:
        states = self._table.cards
        known, end = self._states_known, len(states)
        if known < end:
            self._times = grown(self._times, end)
            self._times[known:end] = self._kinds.times(states.features[known:end])
            self._states_known = end

    def _learn_rows(self, rows: Rows) -> None:
        kinds, table = self._kinds, self._table
        self._cards = grown(self._cards, len(table))
        self._pods = grown(self._pods, len(table))
        self._open = grown(self._open, len(table))
        self._model = grown(self._model, len(table))
        if self._allowed.shape[1] < len(table.models):
            self._allowed = allowed_models(kinds.allowed, table.models)
            self._left = np.vstack(
                [self._left, np.zeros((len(table.models) - len(self._left), self._left.shape[1]))]
            )
        self._cards[rows] = self._times[table.states[rows]].sum(axis=1)
        self._pods[rows] = pods = kinds.pods(self._cards[rows], table.cpu[rows])
        self._left -= self._by_model(rows)
        self._model[rows] = table.model[rows]
        self._open[rows] = pods * np.sqrt(kinds.part_not_larger(pods))
        self._left += self._by_model(rows)

    def _by_model(self, rows: Rows) -> Doubles:
        """What of these rows is open, [model, kind]. A product: numpy's add.at takes six times as long."""
        of_model = np.arange(len(self._left))[:, None] == self._model[rows]
        found: Doubles = of_model.astype(np.float64) @ self._open[rows].astype(np.float64)
        return found

    def _weigh(self) -> None:
        """_weights[model, kind]: what the loss of one pod of the kind costs on a node of the model.

        Of what is supposed to come each kind is its share, and may use this one model.
        """
        kinds = self._kinds
        left = np.einsum("im,mi->i", self._allowed, self._left[:, kinds.item_kind])
        several = kinds.gpus_asked[kinds.gpus > 1].sum() / max(TINY, kinds.gpus_asked.sum())
        several = max(several, _SEVERAL_WHERE_PODS_END * kinds.turnover)
        scarcity = self._scarcity()
        value = _value(kinds.gpus, kinds.cpu, scarcity, several)
        least = max(TINY, 1 - kinds.turnover)
        costs = kinds.share * _worth(left, value[kinds.item_kind], least)
        found = np.zeros((len(kinds.request), self._allowed.shape[1]))
        np.add.at(found, kinds.item_kind, costs[:, None] * self._allowed)
        supposed = self._mix.supposed / len(self._left) * kinds.share_of_kind
        found += (supposed * _worth(self._left, value, least)).T
        found[kinds.whole] += self._weights_of_whole_nodes(scarcity, several, least).T
        self._weights: Floats = found.T.astype(np.float32)

    def _weights_of_whole_nodes(self, scarcity: float, several: float, least: float) -> Doubles:
        """As _weights, of the kinds that ask for whole nodes: with as much CPU as the others ask for, and on
        each model by its part of the cards.
        """
        kinds, table = self._kinds, self._table
        whole = kinds.whole
        gpus = kinds.gpus[whole]
        cpu_milli = (kinds.share_of_kind @ kinds.cpu) / max(TINY, kinds.gpus_asked.sum())
        value = _value(gpus, gpus * cpu_milli, scarcity, max(several, _SEVERAL_OF_WHOLE_NODES))
        counts = table.count[: len(table)]
        parts = np.bincount(table.model[: len(table)], weights=counts, minlength=len(self._left))
        share = _WHOLE_NODES * (1 - kinds.turnover) / max(1, len(whole))
        found: Doubles = share * (parts / max(1, counts.sum()))[:, None]
        return found * _worth(self._left[:, whole], value, least)

    def _scarcity(self) -> float:
        """Of CPU beside GPUs: 1 and the binary logarithm of how many times sooner it would be out.

        What comes is supposed to ask for both as it did so far.
        """
        kinds, table = self._kinds, self._table
        free_cpu = float(table.cpu[: len(table)].sum())
        free_gpus = float(packing.free_gpus(table).sum())
        asked_cpu = float(kinds.share @ kinds.cpu[kinds.item_kind]) + self._mix.other_cpu_milli
        asked_gpus = float(kinds.share @ kinds.gpus[kinds.item_kind])
        sooner = max(asked_cpu * free_gpus, TINY) / max(asked_gpus * free_cpu, TINY)
        return min(_SCARCITY_MAX, max(0.0, 1 + math.log2(sooner)))


def _value(gpus: Doubles, cpu_milli: Floats | Doubles, scarcity: float, several: float) -> Doubles:
    cpus = np.maximum(cpu_milli, _LEAST_CPU_MILLI) / _LEAST_CPU_MILLI
    found: Doubles = (gpus / cpus) ** scarcity * gpus**several
    return found


def _worth(left: Doubles, value: Doubles, least: float) -> Doubles:
    """What a pod is worth with so many left: 0 below the least, as what fits nowhere loses nothing."""
    return np.where(left >= least, value / np.maximum(left, least), 0)
