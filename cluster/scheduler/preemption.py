"""Pods that have to end on a node so that another has room on its cards."""

from collections.abc import Callable, Collection, Iterable, Sequence

from cluster.scheduler.choice import assign
from cluster.scheduler.occupancy import Held, Node, pod_of, without_pods
from cluster.scheduler.pods import Pod
from oci_specs.refusal import Refusal
from placement.cards import CardState

# The cards of a node that a pod may have, out of those that it would have if others ended.
Allowed = Callable[[Sequence[CardState]], Sequence[CardState]]


def victims(
    pod: Pod, node: Node, candidates: Iterable[Held], offered: Collection[str], allowed: Allowed
) -> list[str] | None:
    """UIDs of the pods that end: those that are offered, and of the candidates as few as make room.

    offered: whom the stock scheduler ends anyway, for CPU and the like. Spared first, as the stock scheduler
    does, are those of higher priority, and of one priority those that have run longest. None where the pod
    would not fit without any of them.
    """
    chosen = [uid for uid in offered if uid in node.pods]
    if _fits(pod, node, chosen, allowed):
        return chosen
    # Pods that share a card with those that end go before others: so that card comes free.
    beside = _beside(node, chosen)
    spared = sorted(
        (held for held in candidates if held.pod.containers and held.pod.uid not in chosen),
        key=lambda held: (
            -held.pod.priority,
            held.pod.uid in beside,
            held.pod.created_s,
            held.pod.uid,
        ),
    )
    more = [held.pod.uid for held in spared]
    if not _fits(pod, node, chosen + more, allowed):
        return None
    for held in spared:
        fewer = [uid for uid in more if uid != held.pod.uid]
        if _fits(pod, node, chosen + fewer, allowed):
            more = fewer
    return chosen + more


def _beside(node: Node, uids: Collection[str]) -> set[str]:
    """Pods on the cards that these pods have."""
    on_card = [{pod_of(tenant) for tenant in card.tenants} for card in node.cards]
    return set[str]().union(*(pods for pods in on_card if not pods.isdisjoint(uids)))


def of_lower_priority(pod: Pod, node: Node) -> list[Held]:
    return [held for held in node.pods.values() if held.pod.priority < pod.priority]


def _fits(pod: Pod, node: Node, ended: Iterable[str], allowed: Allowed) -> bool:
    try:
        assign(pod.containers, allowed(without_pods(node, ended)), node.rules)
    except Refusal:
        return False
    return True
