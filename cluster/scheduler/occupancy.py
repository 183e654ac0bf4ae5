"""Cards of the cluster and the pods that have them, from the API server: nodes' inventories, pods'
placements.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import get_args

from cluster.resources.inventory import Inventory
from cluster.scheduler.choice import assign
from cluster.scheduler.pods import Placed, Pod
from oci_specs.refusal import Refusal
from oci_specs.request import Request
from placement import room
from placement.cards import CardState, Tenant
from placement.rules import Rules, Strategy


@dataclass(frozen=True, kw_only=True)
class Held:
    """A pod and its cards. placed None: no scheduler said which, so that mgpud chose them."""

    pod: Pod
    node: str
    placed: Placed | None


@dataclass(kw_only=True)
class Node:
    """One node. cards: the healthy ones by ascending index, with the tenants that the pods come to.

    cpu_free_milli, memory_free_mib: what the pods that are known here leave; below 0 where they ask for more.
    """

    name: str
    rules: Rules = field(default_factory=Rules)
    inventory: Inventory | None = None
    cpu_milli: int = 0
    memory_mib: int = 0
    cards: list[CardState] = field(default_factory=list)
    pods: dict[str, Held] = field(default_factory=dict)
    cpu_free_milli: int = 0
    memory_free_mib: int = 0

    @property
    def is_known(self) -> bool:
        """Whether its inventory was heard of; pods may be heard of before their node."""
        return self.inventory is not None

    @property
    def model(self) -> str:
        return self.cards[0].name if self.cards else ""


class Occupancy:
    """All nodes and pods. Every change may come twice, and pods before their node: the last word counts."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self._node_of: dict[str, str] = {}

    def put_node(self, name: str, inventory: Inventory, cpu_milli: int, memory_mib: int) -> Node:
        """cpu_milli, memory_mib: what the node has for pods (allocatable)."""
        node = self.nodes.setdefault(name, Node(name=name))
        node.inventory = inventory
        node.rules = _rules(inventory)
        node.cpu_milli, node.memory_mib = cpu_milli, memory_mib
        _recount(node)
        return node

    def remove_node(self, name: str) -> Node | None:
        """The node as it is left: without cards; its pods stay until they are removed themselves."""
        node = self.nodes.get(name)
        if node is None:
            return None
        node.inventory = None
        node.cpu_milli = node.memory_mib = 0
        _recount(node)
        if not node.pods:
            del self.nodes[name]
        return node

    def put_pod(self, pod: Pod, node: str, placed: Placed | None) -> list[Node]:
        """The pod has these cards; what it had before is given back. The nodes that changed."""
        changed = []
        before = self.held(pod.uid)
        if before is not None:
            if (before.pod, before.node, before.placed) == (pod, node, placed):
                return []
            changed += self.remove_pod(pod.uid)
        found = self.nodes.setdefault(node, Node(name=node))
        held = Held(pod=pod, node=node, placed=placed)
        found.pods[pod.uid] = held
        self._node_of[pod.uid] = node
        _add(found, held)
        return [found, *(other for other in changed if other is not found)]

    def remove_pod(self, uid: str) -> list[Node]:
        """The nodes that changed: none where the pod is not known."""
        name = self._node_of.pop(uid, None)
        if name is None:
            return []
        node = self.nodes[name]
        held = node.pods.pop(uid)
        node.cpu_free_milli += held.pod.cpu_milli
        node.memory_free_mib += held.pod.memory_mib
        if held.pod.containers:
            node.cards = [_without(card, uid) for card in node.cards]
        if not node.pods and not node.is_known:
            del self.nodes[name]
        return [node]

    def held(self, uid: str) -> Held | None:
        name = self._node_of.get(uid)
        return None if name is None else self.nodes[name].pods[uid]


def without_pods(node: Node, uids: Iterable[str]) -> list[CardState]:
    """The node's cards as they are once these pods have ended."""
    cards = node.cards
    for uid in uids:
        cards = [_without(card, uid) for card in cards]
    return cards


def _rules(inventory: Inventory) -> Rules:
    """A strategy that is not known here, of a newer node, is the default one."""
    stated = inventory.rules
    strategy: Strategy = next(
        (known for known in get_args(Strategy) if known == stated.placement), "default"
    )
    return Rules(
        policy=stated.policy,
        placement=strategy,
        max_containers_per_card=stated.max_containers_per_card,
    )


def _recount(node: Node) -> None:
    cards = node.inventory.healthy if node.inventory is not None else ()
    lends = any(card.lending for card in cards)
    node.cards = [
        CardState(
            index=card.index,
            minor=card.minor,
            uuid=card.uuid,
            name=card.model,
            memory_mib=card.memory_mib,
            policy=card.policy,
            online_mib=card.lending.online_mib if card.lending else None,
            fixed=lends and card.lending is None,
        )
        for card in cards
    ]
    node.cpu_free_milli, node.memory_free_mib = node.cpu_milli, node.memory_mib
    for held in node.pods.values():
        _add(node, held)


def _add(node: Node, held: Held) -> None:
    node.cpu_free_milli -= held.pod.cpu_milli
    node.memory_free_mib -= held.pod.memory_mib
    if not held.pod.containers:
        return
    placed = held.placed
    if placed is None:
        placed = _chosen(node, held.pod) or _guessed(node, held.pod)
    for container, request in zip(held.pod.containers, held.pod.requests, strict=True):
        uuids = placed.get(container.name, ())
        node.cards = [
            with_tenant(card, request, len(uuids), node.rules, f"{held.pod.uid}/{container.name}")
            if card.uuid in uuids
            else card
            for card in node.cards
        ]


def _chosen(node: Node, pod: Pod) -> Placed | None:
    """The cards that mgpud gave a pod without a placement, once it has for all its containers."""
    told = node.inventory.chosen if node.inventory is not None else {}
    found = told.get(f"{pod.namespace}/{pod.name}", {})
    return found if all(each.name in found for each in pod.containers) else None


def _guessed(node: Node, pod: Pod) -> Placed:
    """The cards that mgpud will give a pod without a placement, perhaps in another order than here."""
    try:
        return assign(pod.containers, node.cards, node.rules)
    except Refusal:
        return {}


def with_tenant(card: CardState, request: Request, count: int, rules: Rules, container_id: str) -> CardState:
    """The card with one more container, which has it as one of `count` cards."""
    verdict = room.examine(request, card, count, rules)
    tenant = Tenant(
        container_id=container_id,
        qos=request.qos,
        memory_mib=verdict.share.memory_mib,
        core_percent=verdict.share.core_percent,
        reclaimable=request.reclaimable and card.lends,
        whole=request.whole_cards,
    )
    owner = container_id if card.policy is None else card.policy_owner
    return replace(card, policy=verdict.policy, policy_owner=owner, tenants=(*card.tenants, tenant))


def _without(card: CardState, uid: str) -> CardState:
    """A policy that a container set ends with the last one, as in mgpud."""
    left = tuple(tenant for tenant in card.tenants if pod_of(tenant) != uid)
    if len(left) == len(card.tenants):
        return card
    if left or card.policy_owner is None:
        return replace(card, tenants=left)
    return replace(card, tenants=(), policy=None, policy_owner=None)


def pod_of(tenant: Tenant) -> str:
    return tenant.container_id.partition("/")[0]
