"""The scheduler's decisions: which nodes can take a pod, which is best, which cards it gets there.

    scheduler = Scheduler("fgd")
    scheduler.put_node(name, inventory, cpu_milli, memory_mib)    # once, and whenever it changes
    scheduler.arrived(pod)                                        # once for each pod, new or found at start
    scheduler.put_pod(pod, node, placed)                          # bound: placed as in its annotation
    found = scheduler.filter(pod, names)                          # found.fits, found.refused[name]
    scores = scheduler.score(pod, found.fits)                     # [(name, 0 to 10)]
    placed = scheduler.choose(pod, name)                          # what to write beside the binding
    scheduler.put_pod(pod, name, placed)                          # counts from here on
    scheduler.ended(pod)                                          # once for each that ended on its node
    scheduler.remove_pod(pod.uid)                                 # ended, deleted, or the binding failed

Nothing here waits, asks anybody or knows what time it is. CPU, memory of the node, selectors and taints are
the stock scheduler's business, which has filtered by them before: here they count in scores alone.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from cluster.resources.inventory import ANNOTATION as _ANNOTATION
from cluster.resources.inventory import Inventory
from cluster.resources.wanted import ANY, Wanted
from cluster.scheduler import packing, preemption, ways
from cluster.scheduler.choice import assign
from cluster.scheduler.fragmentation import Fragmentation
from cluster.scheduler.kinds import gpus_of
from cluster.scheduler.mix import Mix
from cluster.scheduler.occupancy import Node, Occupancy, with_tenant
from cluster.scheduler.pods import Placed, Pod
from cluster.scheduler.states import Demand
from cluster.scheduler.table import Floats, Rows, Table
from cluster.scheduler.ways import Ways
from oci_specs.refusal import Refusal
from oci_specs.request import Request
from placement.cards import CardState
from placement.rules import Rules, Strategy

Scoring = Literal["fgd", "binpack", "spread"]

# Kubernetes' MaxExtenderPriority: an extender's scores are whole numbers up to it.
SCORE_MAX = 10
# Of the nodes that refuse a pod so many say why in full, the others in short: words cost time, and people are
# shown a line or two of them.
_REASONED = 3
_SHORT = "no GPU of it has room"
_UNKNOWN = f"it has no {_ANNOTATION}"
# States of cards that are remembered, at 1 KiB each: so many, and as many times those that are in use. Where
# memory is lent nearly every card is in a state of its own, and to learn them anew takes seconds.
_STATES_LEAST, _STATES_PER_USED = 10_000, 8

# Whether a pod may not have a card, by its UUID: a reservation of another's.
Barred = Callable[[Pod, str], bool]
# States of a node's cards before a pod and with it, those that change.
Change = tuple[tuple[int, ...], tuple[int, ...]]
# Pods that fare alike on cards in the same states.
_Alike = tuple[tuple[Request, ...], Wanted]
_NOBODY: _Alike = ((), ANY)


@dataclass(frozen=True, kw_only=True)
class Filtered:
    """fits: names, in the order asked. refused: one line on why not for each other name. rows: those of fits,
    for best().
    """

    fits: list[str]
    refused: dict[str, str]
    rows: Rows | None = None


class Scheduler:
    """Which pods have which cards of the cluster, and where the next one goes."""

    def __init__(self, scoring: Scoring = "fgd") -> None:
        self.occupancy = Occupancy()
        # UUIDs of cards that are set aside, with their nodes, and for whom they are not.
        self.reserved: dict[str, str] = {}
        self.barred: Barred = _none_is_barred
        # How often there has been more room than before, or other nodes.
        self.freed = 0
        self._scoring = scoring
        self._table = Table()
        self._states_most = _STATES_LEAST
        self._mix = Mix()
        self._fragmentation = Fragmentation(self._table, self._mix)
        # Of the pod that was asked about last, by the states of a row's cards.
        self._changes: tuple[_Alike, dict[bytes, Change | None]] = (_NOBODY, {})

    def put_node(self, name: str, inventory: Inventory, cpu_milli: int, memory_mib: int) -> None:
        """cpu_milli, memory_mib: what the node has for pods (allocatable)."""
        self.freed += 1
        self._changed([self.occupancy.put_node(name, inventory, cpu_milli, memory_mib)])

    def remove_node(self, name: str) -> None:
        node = self.occupancy.remove_node(name)
        if node is not None:
            self._changed([node])

    def arrived(self, pod: Pod) -> None:
        """A pod was seen for the first time. What typical pods are is learned from these."""
        self._mix.arrived(pod)

    def ended(self, pod: Pod) -> None:
        """A pod that had a place is gone; it is removed too. How many end is learned from these."""
        self._mix.ended(pod)

    def put_pod(self, pod: Pod, node: str, placed: Placed | None) -> None:
        """The pod is on the node, or will be. placed None: mgpud chooses its cards."""
        self._changed(self.occupancy.put_pod(pod, node, placed))

    def remove_pod(self, uid: str) -> None:
        self.freed += 1
        self.roll_back_pod(uid)

    def roll_back_pod(self, uid: str) -> None:
        """The pod was put for a try alone: there is as much room as before it."""
        self._changed(self.occupancy.remove_pod(uid))

    def _changed(self, nodes: Iterable[Node]) -> None:
        cards = self._table.cards
        if len(cards) > self._states_most:
            self._states_most = max(_STATES_LEAST, _STATES_PER_USED * len(cards.in_use))
        if len(cards) > self._states_most:
            self._table = Table()
            self._fragmentation = Fragmentation(self._table, self._mix)
            self._changes = (_NOBODY, {})
            nodes = self.occupancy.nodes.values()
        for node in nodes:
            self._table.put(node)

    def filter(self, pod: Pod, names: Sequence[str]) -> Filtered:
        """Of these nodes, the ones that have room. A node that is not known has no GPU to offer."""
        if not pod.containers:
            return Filtered(fits=list(names), refused={})
        fitting = self._fitting(pod, self._table.rows(names))
        if len(fitting) == len(names):
            return Filtered(fits=list(names), refused={}, rows=fitting)
        table_names = self._table.names
        fits = {table_names[row] for row in fitting.tolist()}
        left = [name for name in names if name not in fits]
        refused = {name: _SHORT if name in self._table.row_of else _UNKNOWN for name in left}
        if not fits:
            for name in self.emptiest(left, _REASONED):
                refused[name] = f"node {name}: {self.reason(pod, name)}"
        return Filtered(fits=[name for name in names if name in fits], refused=refused, rows=fitting)

    def score(self, pod: Pod, names: Sequence[str]) -> list[tuple[str, int]]:
        """The best node has SCORE_MAX, the next one less, and so on to 0.

        By rank: whole numbers from 0 to 10 of the costs themselves would make most of them equal, and the
        stock scheduler takes any of the equal ones.
        """
        if len(names) == 1:
            return [(names[0], SCORE_MAX)]
        scores = dict.fromkeys(names, 0)
        rows = self._fitted(pod, names)
        costs = self._costs(pod, rows)
        if len(rows) > SCORE_MAX:
            best = np.argpartition(costs, SCORE_MAX)[:SCORE_MAX]
            # Equal ones go by the order of the names, of all nodes that are as good as the tenth.
            best = np.flatnonzero(costs <= costs[best].max())
        else:
            best = np.arange(len(rows))
        order = best[np.argsort(costs[best], kind="stable")][:SCORE_MAX]
        for place, row in enumerate(rows[order].tolist()):
            scores[self._table.names[row]] = SCORE_MAX - place
        return list(scores.items())

    def best(self, pod: Pod, names: Sequence[str], rows: Rows | None = None) -> str | None:
        """The node with the highest score, None where none has room. rows: as filter() found them for these
        names, just now.
        """
        if rows is None:
            rows = self._fitted(pod, names)
        return self._table.names[rows[int(self._costs(pod, rows).argmin())]] if len(rows) else None

    def choose(self, pod: Pod, name: str) -> dict[str, tuple[str, ...]]:
        """Cards for each container on this node, by UUID; Refusal where they do not fit (any more)."""
        node = self.occupancy.nodes.get(name)
        if node is None or not node.is_known:
            raise Refusal(
                "unknown-node", f"node {name} has no {_ANNOTATION}", "see that mgpu-node runs there"
            )
        if not pod.containers:
            return {}
        cards = self.open_to(pod, node.cards, node)
        demand = self._simple(pod)
        row = self._table.row_of[name]
        if self._packs_by_loss(pod) and demand is not None and len(cards) == len(node.cards):
            found = self._simple_ways(pod.requests[0], demand, np.array([row], dtype=np.intp))
            if len(found.rows):
                costs = self._fragmentation.losses(found, pod.cpu_milli)
                wanted = found.before[int(costs.argmin())].tolist()
                container = pod.containers[0]
                narrowed = replace(container.request, placed=self._uuids(node, wanted))
                return dict(assign([replace(container, request=narrowed)], cards, node.rules))
        return dict(assign(pod.containers, cards, self._rules(pod, node)))

    def reason(self, pod: Pod, name: str) -> str:
        """Why the node has no room for the pod, in one line that names cards."""
        node = self.occupancy.nodes.get(name)
        if node is None or not node.is_known:
            return _UNKNOWN
        wanted = pod.wanted.of(node.cards)
        if not wanted:
            return f"the pod's annotations leave none of its {len(node.cards)} GPUs"
        cards = self.open_to(pod, node.cards, node)
        try:
            assign(pod.containers, cards, node.rules)
        except Refusal as refusal:
            left_out = (
                (len(node.cards) - len(wanted), "left out by the pod's annotations"),
                (len(wanted) - len(cards), "reserved for pods that wait longer"),
            )
            return refusal.message + "".join(f" ({number} {why})" for number, why in left_out if number)
        return _SHORT

    def preempt(self, pod: Pod, offered: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
        """Of these nodes those where the pod has room once pods of lower priority have ended, and which.

        offered[name]: UIDs of those that the stock scheduler would end there.
        """
        found = {}
        for name, uids in offered.items():
            node = self.occupancy.nodes.get(name)
            if node is None or not node.is_known:
                continue
            lower = preemption.of_lower_priority(pod, node)
            chosen = preemption.victims(pod, node, lower, uids, partial(self.open_to, pod, node=node))
            if chosen is not None:
                # Pods that are not known here are the stock scheduler's to judge.
                found[name] = [*(uid for uid in uids if uid not in node.pods), *chosen]
        return found

    def open_to(self, pod: Pod, cards: Sequence[CardState], node: Node) -> Sequence[CardState]:
        """The node's cards that the pod's annotations leave and that are not reserved for others."""
        cards = pod.wanted.of(cards)
        if node.name not in self.reserved.values():
            return cards
        return [card for card in cards if card.uuid not in self.reserved or not self.barred(pod, card.uuid)]

    def emptiest(self, names: Sequence[str], most: int) -> list[str]:
        """The nodes that have most free, the most free one first."""
        rows = self._table.rows(names)
        order = np.argsort(packing.costs(self._table, rows, "spread"), kind="stable")[:most]
        return [self._table.names[row] for row in rows[order].tolist()]

    def free_gpus(self) -> dict[str, float]:
        """Of each node; a GPU is as free as the scarcer of its memory and its core."""
        free = packing.free_gpus(self._table).tolist()
        return {name: free[row] for name, row in self._table.row_of.items()}

    def gpus(self, pod: Pod) -> float:
        """That the pod comes to on the largest cards there are."""
        largest_mib = packing.largest_card_mib(self._table)
        return sum(gpus_of(request, largest_mib) for request in pod.requests)

    def _packs_by_loss(self, pod: Pod) -> bool:
        """Whether the loss says which cards of a node a pod gets."""
        return self._scoring == "fgd" and pod.wanted.cards is None

    def _rules(self, pod: Pod, node: Node) -> Rules:
        """In a node where FGD has no say of its own, cards are packed, which is what it would do."""
        packed: Strategy = "spread" if self._scoring == "spread" else "binpack"
        return replace(node.rules, placement=pod.wanted.cards or packed)

    def _simple(self, pod: Pod) -> Demand | None:
        """Whether arrays can answer: one container, which names no cards."""
        return self._demand(pod.requests[0]) if len(pod.requests) == 1 else None

    def _demand(self, request: Request) -> Demand | None:
        return None if request.count is None or _names_cards(request) else self._table.cards.demand(request)

    def _one_by_one(self, pod: Pod, rows: Rows) -> Rows:
        """Rows that arrays cannot answer for: mgpud's rules are asked for each of them."""
        if self._simple(pod) is None:
            return rows
        table = self._table
        alone = np.zeros(len(table), dtype=np.bool_)
        if (pod.requests[0].count or 1) > 1:
            alone |= ~table.plain[: len(table)]
        kept = table.rows(set(self.reserved.values()))
        alone[kept] = True
        if pod.wanted.chooses:
            alone[[row for row in rows.tolist() if not self._is_whole(pod, row)]] = True
        return rows[alone[rows]]

    def _is_whole(self, pod: Pod, row: int) -> bool:
        """Whether the pod's annotations leave every card of the row."""
        cards = self.occupancy.nodes[self._table.names[row]].cards
        return len(pod.wanted.of(cards)) == len(cards)

    def _fitting(self, pod: Pod, rows: Rows) -> Rows:
        for request in set(pod.requests):
            demand = self._demand(request)
            if demand is not None:
                fits = demand.fits(self._table.states[rows]).sum(axis=1) >= (request.count or 1)
                rows = rows[fits]
        single = self._one_by_one(pod, rows)
        refused = [row for row in single.tolist() if self._change(pod, row) is None]
        return rows[~np.isin(rows, refused)] if refused else rows

    def _change(self, pod: Pod, row: int) -> Change | None:
        """The states that cards of this row have before the pod and with it, one by one; None without room.

        Rows whose cards are in the same states fare alike, unless cards are named, reserved, or one GPU's.
        """
        table = self._table
        node = self.occupancy.nodes[table.names[row]]
        if self._changes[0] != (pod.requests, pod.wanted):
            self._changes = ((pod.requests, pod.wanted), {})
        alike = (
            table.plain[row]
            and self._is_whole(pod, row)
            and node.name not in self.reserved.values()
            and not any(map(_names_cards, pod.requests))
        )
        key = table.states[row].tobytes() if alike else None
        if key is not None and key in self._changes[1]:
            return self._changes[1][key]
        found = self._changed_by(pod, node)
        if key is not None:
            self._changes[1][key] = found
        return found

    def _changed_by(self, pod: Pod, node: Node) -> Change | None:
        try:
            placed = assign(pod.containers, self.open_to(pod, node.cards, node), self._rules(pod, node))
        except Refusal:
            return None
        then = {card.uuid: card for card in node.cards}
        for container, request in zip(pod.containers, pod.requests, strict=True):
            uuids = placed[container.name]
            for uuid in uuids:
                then[uuid] = with_tenant(then[uuid], request, len(uuids), node.rules, container.name)
        states = self._table.cards
        changed = [card for card in node.cards if then[card.uuid] is not card]
        return (
            tuple(states.of(card, node.rules) for card in changed),
            tuple(states.of(then[card.uuid], node.rules) for card in changed),
        )

    def _fitted(self, pod: Pod, names: Sequence[str]) -> Rows:
        rows = self._table.rows(names)
        return self._fitting(pod, rows) if pod.containers else rows

    def _costs(self, pod: Pod, rows: Rows) -> Floats:
        """The pod's cost on each of these rows, which have room: less is better."""
        scoring = pod.wanted.nodes or self._scoring
        if scoring != "fgd":
            return packing.costs(self._table, rows, scoring)
        if not pod.containers:
            return self._fragmentation.losses(ways.without_cards(rows), pod.cpu_milli)
        demand = self._simple(pod)
        costs = np.full(len(self._table), np.inf, dtype=np.float32)
        single = self._one_by_one(pod, rows)
        for found in self._ways_single(pod, single):
            costs[found.rows] = self._fragmentation.losses(found, pod.cpu_milli)
        if demand is not None:
            alike = rows[~np.isin(rows, single)] if len(single) else rows
            found = self._simple_ways(pod.requests[0], demand, alike)
            np.minimum.at(costs, found.rows, self._fragmentation.losses(found, pod.cpu_milli))
        return costs[rows]

    def _simple_ways(self, request: Request, demand: Demand, rows: Rows) -> Ways:
        if request.count == 1:
            return ways.of_one_card(self._table, demand, rows)
        assert request.count is not None
        return ways.of_several(self._table, demand, rows[self._table.plain[rows]], request.count)

    def _ways_single(self, pod: Pod, rows: Rows) -> Iterator[Ways]:
        """As the pod would be placed on each of these rows, where it has room; those of as many cards
        together.
        """
        by_cards: dict[int, list[tuple[int, Change]]] = defaultdict(list)
        for row in rows.tolist():
            change = self._change(pod, row)
            if change is not None:
                by_cards[len(change[0])].append((row, change))
        for found in by_cards.values():
            yield Ways(
                np.array([row for row, _ in found], dtype=np.intp),
                np.array([before for _, (before, _) in found], dtype=np.int32),
                np.array([after for _, (_, after) in found], dtype=np.int32),
            )

    def _uuids(self, node: Node, wanted: Iterable[int]) -> tuple[str, ...]:
        """The first cards of the node in these states."""
        left = list(node.cards)
        found = []
        for number in wanted:
            card = next(card for card in left if self._table.cards.of(card, node.rules) == number)
            left.remove(card)
            found.append(card.uuid)
        return tuple(found)


def _names_cards(request: Request) -> bool:
    return bool(request.uuids or request.candidates or request.placed)


def _none_is_barred(pod: Pod, uuid: str) -> bool:
    return False
