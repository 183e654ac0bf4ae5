"""The grants of this node: what each container was given, and where it is in its life.

admitted → bound → draining → gone. A reservation counts from admission on; it is given back when nothing of
the container is left in the driver, not when a hook reports its end.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from native_sched.daemon.engine_abi import NodeKind
from native_sched.daemon.grants.containerd_task import ContainerdTask
from oci_specs.request import Identity, Qos
from placement.cards import CardShare

State = Literal["admitted", "bound", "draining"]


class Node(NamedTuple):
    """One device node of a container: what file it is, and what it stands for."""

    dev: int
    ino: int
    kind: NodeKind
    minor: int


class ReclaimState(StrEnum):
    RUNNING = "running"
    EVICTING = "evicting"
    EVICTED = "evicted"
    RESTORING = "restoring"


@dataclass(kw_only=True)
class Reclaim:
    """A container's memory on its way out of the cards and back, as it is written down before each step.

    processes: (pid, start time) of those that were found on a card when its eviction began. bytes: what it
    held, by card. were: by pid, the UUIDs of the cards that a process was moved off, where they are not those
    that its container has now. saved: of one of a checkpoint, until its processes are known: the UUIDs of the
    cards that it had. by_hand: the operator evicted it, and resumes it. since_ns: of the state, by
    CLOCK_MONOTONIC.
    """

    state: ReclaimState = ReclaimState.RUNNING
    processes: tuple[tuple[int, int], ...] = ()
    bytes: dict[int, int] = field(default_factory=dict)
    were: dict[int, tuple[str, ...]] = field(default_factory=dict)
    saved: tuple[str, ...] = ()
    by_hand: bool = False
    since_ns: int = 0


class Asked(NamedTuple):
    """A request of the operator's that mgpud has not met yet. cards, by_hand: as they were."""

    what: Literal["evict", "resume"]
    cards: tuple[CardShare, ...] = ()
    by_hand: bool = False


def grant_id(tenant: int) -> str:
    """A grant's name, from its container's number in the engine."""
    return f"g-{tenant}"


@dataclass(kw_only=True)
class Grant:
    """One container's grant. tenant is its number in the engine; nonce is what hook and listener prove it by.

    whole_cards: no other container may be on its cards. reclaimable: its memory gives way to online
    containers; reclaim: where it is with that. paused: it is frozen. containerd: what containerd
    told of it. qos, policy and cards follow the operator's live changes. pid is its init process,
    runtime_pid the runtime that makes it; a start time goes with each (process_id.py). nodes: all that it has
    of the driver's, also of cards that it may be restored onto. lease_end_ns: until when it may be admitted
    and not bound, by CLOCK_MONOTONIC. asked_crc32: of the message that asked for it. claims: what it was
    granted by, as oci_specs/claim.py names it. capabilities: the driver's, by
    NVIDIA_DRIVER_CAPABILITIES. chosen: mgpud chose the cards, and neither a scheduler nor a claim did.
    program: what its init process executed when it was bound, which is the runtime.
    """

    tenant: int
    nonce: str
    container_id: str
    rootfs: str
    identity: Identity
    qos: Qos
    policy: str | None
    advisory: bool
    cards: tuple[CardShare, ...]
    edits: dict[str, Any]
    whole_cards: bool = False
    reclaimable: bool = False
    created: datetime = field(default_factory=lambda: datetime.now(UTC))
    state: State = "admitted"
    pid: int | None = None
    pid_start: int = 0
    program: tuple[int, int] | None = None
    runtime_pid: int = 0
    runtime_start: int = 0
    lease_end_ns: int = 0
    asked_crc32: str = ""
    claims: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    chosen: bool = False
    nodes: tuple[Node, ...] = ()
    paused: bool = False
    containerd: ContainerdTask | None = None
    # False: the engine could not take it over, so it gets no service; what it may hold stays reserved while
    # it lives.
    served: bool = True
    reclaim: Reclaim = field(default_factory=Reclaim)
    # Why it could not be evicted or restored when that was last tried; what the operator has asked for.
    not_moved: str = ""
    asked: Asked | None = None
    # Evicted: when it comes back if there is room until then, in CLOCK_MONOTONIC, or why it does not yet.
    back_ns: int = 0
    waits: str = ""
    # Whether the listener of its main process is served, and whether it is found that there is none.
    listens: bool = False
    lost_listener: bool = False
    # Not 0: the driver counted so much more to it than it was charged for, and it was killed.
    unaccounted_bytes: int = 0
    # Why its work could not be suspended: it was killed.
    unsuspendable: str = ""

    @property
    def id(self) -> str:
        return grant_id(self.tenant)

    @property
    def name(self) -> str:
        """As `mgpu ps` shows it: NAMESPACE/POD/CONTAINER, or its id where there is no pod."""
        who = self.identity
        return (
            "/".join(filter(None, (who.namespace, who.pod, who.container))) if who.pod else self.container_id
        )

    @property
    def alone(self) -> bool:
        """It gets what is for whole cards alone, of which a MIG instance is none. Memory that gives way
        is never asked for so.
        """
        return self.whole_cards and not any(card.uuid.startswith("MIG-") for card in self.cards)

    @property
    def own_nodes(self) -> list[Node]:
        """The nodes that serve: the engine is told of no others."""
        minors = {card.minor for card in self.cards}
        return [node for node in self.nodes if node.kind != NodeKind.CARD or node.minor in minors]

    def evicted_bytes(self, card: int, used_bytes: int) -> int:
        """Of its memory of a card on which it holds so much, what is in host memory: in the middle of a move
        that is the rest.
        """
        return max(0, self.reclaim.bytes.get(card, 0) - used_bytes)

    def has_card(self, index: int) -> bool:
        return any(card.index == index for card in self.cards)


class Grants:
    """All grants that still hold anything, in the order in which they were admitted."""

    def __init__(self, last_tenant: int = 0) -> None:
        """last_tenant: the highest number that a previous mgpud gave."""
        self._by_nonce: dict[str, Grant] = {}
        self.last_tenant = last_tenant

    def __iter__(self) -> Iterator[Grant]:
        return iter(list(self._by_nonce.values()))

    def __len__(self) -> int:
        return len(self._by_nonce)

    def name(self) -> tuple[int, str]:
        """A tenant number never used before on this node, and an unguessable nonce of 32 hex digits."""
        self.last_tenant += 1
        return self.last_tenant, os.urandom(16).hex()

    def add(self, grant: Grant) -> None:
        self._by_nonce[grant.nonce] = grant
        self.last_tenant = max(self.last_tenant, grant.tenant)

    def get(self, nonce: str) -> Grant | None:
        return self._by_nonce.get(nonce)

    def whose(self, container_id: object) -> dict[str, object]:
        """Pod, namespace and name of a container, for the log; empty where there is no pod."""
        for grant in self:
            who = grant.identity
            if grant.container_id == container_id and who.pod:
                return {"pod": who.pod, "namespace": who.namespace or "", "name": who.container}
        return {}

    def remove(self, grant: Grant) -> None:
        self._by_nonce.pop(grant.nonce, None)
