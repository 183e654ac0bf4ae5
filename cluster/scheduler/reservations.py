"""A place is kept for a pod that has waited long, so that smaller ones that come later do not starve it.

reservations = Reservations(scheduler)
reservations.refused(pod, names, now_s)     # filter found no node for it
reservations.forget(uid)                    # it is bound, or gone
reservations.tick(now_s)                    # from time to time: what has lasted long enough ends
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from cluster.scheduler.choice import assign
from cluster.scheduler.occupancy import Node, without_pods
from cluster.scheduler.pods import Pod
from cluster.scheduler.preemption import victims
from cluster.scheduler.scheduler import Scheduler
from oci_specs.refusal import Refusal

# Nodes that are looked at for a place: those that have most free.
_NODES = 32


@dataclass(frozen=True, kw_only=True)
class Reservation:
    """Cards of one node that only this pod, older ones and more important ones may have."""

    pod: Pod
    node: str
    uuids: frozenset[str]
    until_s: float


class Reservations:
    """Pods that wait, and the cards that are kept for them; the scheduler asks it about every such card."""

    def __init__(
        self, scheduler: Scheduler, *, reserve_after_s: float = 60.0, reserve_for_s: float = 600.0
    ) -> None:
        """reserve_after_s: how long a pod is refused before a place is kept; reserve_for_s: how long that
        is.
        """
        self._scheduler = scheduler
        self._after_s = reserve_after_s
        self._for_s = reserve_for_s
        self._waits_since: dict[str, float] = {}
        self._kept: dict[str, Reservation] = {}
        scheduler.barred = self._bars

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, uid: str) -> Reservation | None:
        return self._kept.get(uid)

    def refused(self, pod: Pod, names: Sequence[str], now_s: float) -> Reservation | None:
        """No node has room for the pod. names: nodes that it may be on. What is kept for it, now or
        before.
        """
        since = self._waits_since.setdefault(pod.uid, now_s)
        # A clock that was set back starts the wait anew.
        if now_s < since:
            self._waits_since[pod.uid] = since = now_s
        if pod.uid in self._kept or now_s - since < self._after_s:
            return self._kept.get(pod.uid)
        found = self._place(pod, names)
        if found is None:
            return None
        return self._keep(pod, *found, now_s)

    def keep(self, pod: Pod, node: Node, ended: Sequence[str], now_s: float) -> Reservation | None:
        """Cards that the pod gets on this node once these pods have ended, who are made to; None where it
        gets none by that.
        """
        try:
            return self._keep(pod, node.name, self._cards(pod, node, ended), now_s)
        except Refusal:
            return None

    def _keep(self, pod: Pod, node: str, uuids: frozenset[str], now_s: float) -> Reservation:
        kept = Reservation(pod=pod, node=node, uuids=uuids, until_s=now_s + self._for_s)
        self._kept[pod.uid] = kept
        self._tell()
        return kept

    def forget(self, uid: str) -> None:
        self._waits_since.pop(uid, None)
        if self._kept.pop(uid, None) is not None:
            self._tell()

    def tick(self, now_s: float) -> None:
        """A pod whose reservation has ended waits anew for the next."""
        over = [
            uid
            for uid, kept in self._kept.items()
            if now_s >= kept.until_s or now_s < kept.until_s - self._for_s
        ]
        for uid in over:
            del self._kept[uid]
            self._waits_since[uid] = now_s
        if over:
            self._tell()

    def _bars(self, pod: Pod, uuid: str) -> bool:
        return any(
            uuid in kept.uuids and kept.pod.uid != pod.uid and _comes_after(pod, kept.pod)
            for kept in self._kept.values()
        )

    def _tell(self) -> None:
        self._scheduler.reserved = {uuid: kept.node for kept in self._kept.values() for uuid in kept.uuids}

    def _place(self, pod: Pod, names: Sequence[str]) -> tuple[str, frozenset[str]] | None:
        """The cards that are soonest free: those for which the fewest containers have to end."""
        best: tuple[int, str, frozenset[str]] | None = None
        for name in self._scheduler.emptiest(names, _NODES):
            node = self._scheduler.occupancy.nodes[name]
            open_to = partial(self._scheduler.open_to, pod, node=node)
            chosen = victims(pod, node, node.pods.values(), (), open_to)
            if chosen is None or (best is not None and len(chosen) >= best[0]):
                continue
            best = len(chosen), name, self._cards(pod, node, chosen)
        return None if best is None else best[1:]

    def _cards(self, pod: Pod, node: Node, ended: Sequence[str]) -> frozenset[str]:
        cards = self._scheduler.open_to(pod, without_pods(node, ended), node)
        placed = assign(pod.containers, cards, node.rules)
        return frozenset(uuid for uuids in placed.values() for uuid in uuids)


def _comes_after(pod: Pod, other: Pod) -> bool:
    """By priority, and then by age."""
    return (-pod.priority, pod.created_s) > (-other.priority, other.created_s)
