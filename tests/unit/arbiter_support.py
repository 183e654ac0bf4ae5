"""An arbiter without an engine: one that only remembers what it was told, behind the real admission and
verbs.
"""

import asyncio
import errno
import os
from collections.abc import Callable, Collection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from native_sched.daemon.control.arbiter import Arbiter, Node
from native_sched.daemon.control.lifecycle import Lifecycle
from native_sched.daemon.control.server import Peer
from native_sched.daemon.engine import Engine
from native_sched.daemon.engine_abi import (
    CardMemory,
    Chip,
    NodeKind,
    Process,
    SchedEvent,
    SchedState,
    TenantClass,
    TenantState,
    Unsuspendable,
    Usage,
    Why,
    Without,
)
from native_sched.daemon.grants.admission import Admission
from native_sched.daemon.grants.card_policies import CardPolicies
from native_sched.daemon.grants.claims import Claims
from native_sched.daemon.grants.grants import Grant, Grants
from native_sched.daemon.grants.scheduling import Scheduling
from native_sched.daemon.grants.served import Served
from native_sched.daemon.grants.store import GrantStore
from native_sched.daemon.links.holder import HolderLink
from native_sched.daemon.links.listeners import Listeners
from native_sched.daemon.node.config import NodeConfig
from native_sched.daemon.node.inventory import CardInfo
from native_sched.daemon.node.state import NodeState
from oci_specs import schemas

CARDS = [
    CardInfo(index=i, minor=i, uuid=f"GPU-{i}", name="Tesla V100-SXM2-16GB", memory_mib=16160, gpu_id=9 + i)
    for i in range(2)
]


class FakeEngine:
    """What the engine would be told. busy: tenants that still hold something."""

    def __init__(self) -> None:
        self.video: set[int] = set()
        self.unaccounted: dict[int, int] = {}
        self.unsuspendable: dict[int, tuple[Unsuspendable, int]] = {}
        self.tenants: dict[int, dict[int, int]] = {}
        self.busy: set[int] = set()
        self.listeners: list[tuple[int, int]] = []
        self.violators: set[int] = set()
        self.policies: dict[int, str] = {}
        self.paused: dict[int, bool] = {}
        self.scheduled: dict[int, tuple[TenantClass, int]] = {}
        self.nodes: dict[int, list[tuple[int, int, NodeKind, int]]] = {}
        self.journal: set[int] = set()
        self.bytes_on_card: dict[tuple[int, int], int] = {}
        self.after_grant: Callable[[int, int], None] = lambda tenant, card: None
        self.refuses: set[str] = set()
        self.driver_alive = True
        self.realtime = False
        self.lacks: dict[int, dict[Without, int]] = {}
        self.log: list[SchedEvent] = []
        self.memory_told: list[object] = []
        self.released: list[int] = []
        self.spaces: dict[int, int] = {}
        self.alone: set[int] = set()
        self.event_fd = -1

    def close(self) -> None:
        os.close(self.event_fd)
        for _, fd in self.listeners:
            os.close(fd)

    def add_tenant(self, tenant: int) -> bool:
        if "tenant" in self.refuses:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.tenants[tenant] = {}
        return tenant in self.journal

    def add_node(self, tenant: int, dev: int, ino: int, kind: NodeKind, minor: int) -> None:
        self.nodes.setdefault(tenant, []).append((dev, ino, kind, minor))

    def pid_space(self, tenant: int, pid_namespace: int) -> None:
        self.spaces[tenant] = pid_namespace

    def recovered(self) -> int:
        return len(self.journal - self.tenants.keys())

    def grant(self, tenant: int, card: int, cap_bytes: int) -> None:
        self.tenants[tenant][card] = cap_bytes
        self.after_grant(tenant, card)

    def whole(self, tenant: int) -> None:
        self.alone.add(tenant)

    def capabilities(self, tenant: int, names: Collection[str]) -> None:
        self.video |= {tenant} if "video" in names else set()

    def move(self, tenant: int, old: int, new: int) -> None:
        if "move" in self.refuses:
            raise OSError(errno.EBUSY, "Device or resource busy")
        self.tenants[tenant][new] = self.tenants[tenant].pop(old)

    def usage(self, tenant: int, card: int) -> Usage:
        held = self.bytes_on_card.get((tenant, card), 0)
        return Usage(cap_bytes=self.tenants[tenant][card], used_bytes=held, peak_bytes=held)

    def processes(self, _tenant: int) -> list[Process]:
        return []

    rm_table = "580.65"

    def state(self, tenant: int) -> TenantState:
        violators = self.unaccounted.get(tenant, 0)
        why, status = self.unsuspendable.get(tenant, (Unsuspendable.SUSPENDABLE, 0))
        return TenantState(listeners=1, unaccounted_bytes=violators, unsuspendable=why, refused=status)

    def without(self, card: int) -> dict[Without, int]:
        return self.lacks.get(card, {})

    def chip(self, card: int) -> Chip:
        return Chip(b"GV100", b"hw_fifo_gv100.h", 1)

    def card_policy(self, card: int, policy: str) -> None:
        if f"policy {card}" in self.refuses:
            raise OSError(errno.EBUSY, "Device or resource busy")
        self.policies[card] = policy

    def schedule(self, tenant: int, tenant_class: TenantClass, quota_percent: int) -> None:
        if "schedule" in self.refuses:
            raise OSError(errno.EINVAL, "Invalid argument")
        assert tenant in self.tenants
        assert 1 <= quota_percent <= 100
        assert all(card in self.policies for card in self.tenants[tenant]), "a GPU without a policy"
        for card in self.tenants[tenant]:
            others = [
                percent
                for other, (its_class, percent) in self.scheduled.items()
                if other != tenant and its_class == tenant_class and card in self.tenants[other]
            ]
            # The scheduler answers -EDQUOT, which admission and live changes have to rule out, also on the
            # way.
            assert sum(others) + quota_percent <= 100, "the class comes to more than a GPU"
        self.scheduled[tenant] = (tenant_class, quota_percent)

    def memory(self, tenant: int, kind: int) -> None:
        self.memory_told.append((tenant, int(kind)))

    def reclaim(self, tenant: int, *, closed: bool, room_bytes: dict[int, int] | None = None) -> None:
        self.memory_told.append((tenant, closed, room_bytes))

    def card_memory(self, card: int) -> CardMemory:
        return CardMemory()

    def release_card(self, card: int) -> None:
        self.released.append(card)

    def pause(self, tenant: int, paused: bool) -> None:
        if tenant not in self.scheduled:
            raise OSError(errno.ENOENT, "No such file or directory")
        self.paused[tenant] = paused

    def sched(self, tenant: int) -> SchedState:
        return SchedState(enabled=1, busy=1, why=Why.NONE, run_ns=7)

    def events(self, since: int) -> tuple[list[SchedEvent], int, int]:
        return self.log[since:], len(self.log), 0

    def remove_tenant(self, tenant: int) -> None:
        if tenant in self.busy:
            raise OSError(errno.EBUSY, "busy")
        if self.tenants.pop(tenant, None) is None:
            raise OSError(errno.ENOENT, "no such tenant")
        self.scheduled.pop(tenant, None)

    def add_listener(self, tenant: int, fd: int, holder_id: int) -> bool:
        if tenant not in self.tenants:
            os.close(fd)
            raise OSError(errno.ENOENT, "No such file or directory")
        self.listeners.append((tenant, fd))
        return holder_id in self.violators


class FakeLink:
    def __init__(self) -> None:
        self.dropped: list[int] = []
        self.held, self.mine = 1, 1

    def held_of(self, _metadata: str) -> int:
        return self.mine

    def drop(self, holder_id: int) -> None:
        self.dropped.append(holder_id)


class World:
    """folder: where the grants are written down; another World on it is the next mgpud."""

    def __init__(self, config: NodeConfig, folder: Path | None = None) -> None:
        self._made = None if folder else TemporaryDirectory()
        self.folder = folder = folder or Path(self._made.name if self._made else "")
        self.store = GrantStore(str(folder / "grants"))
        self.state = NodeState(str(folder / "node-state.json"))
        self.loop = asyncio.new_event_loop()
        self.engine = FakeEngine()
        self.engine.event_fd = os.eventfd(0, os.EFD_NONBLOCK)
        self.link = FakeLink()
        self.grants = Grants(self.state.now.last_tenant)
        self.policies = CardPolicies(self.grants, self.state.now.policies)
        engine = cast(Engine, self.engine)
        self.scheduling = Scheduling(engine, self.grants, self.policies)
        self.served = Served(
            cards=list(CARDS),
            config=config,
            engine=engine,
            grants=self.grants,
            policies=self.policies,
            scheduling=self.scheduling,
            store=self.store,
            node=self.state,
        )
        self.admission = Admission(
            self.served,
            lambda _cards: {"devices": [], "mounts": []},
            Claims(str(folder / "claims"), self.grants),
        )
        self.listeners = Listeners(engine, self.grants, cast(HolderLink, self.link))
        self.life = Lifecycle(self.served, self.loop)
        node = Node(
            driver="sim",
            driver_version="1",
            listener_path="/l",
            socket="/s",
        )
        self.arbiter = Arbiter(node, self.served, self.admission, self.life)

    def admit(
        self,
        container: str = "c1",
        reach: list[Any] | None = None,
        annotations: dict[str, str] | None = None,
        env: dict[str, str] | None = None,
        **variables: str,
    ) -> Grant | None:
        grant = self.admission.admit(
            {
                "container_id": container,
                "rootfs": "/r",
                "annotations": annotations or {},
                "env": {**(env or {}), **variables},
                "reach": reach or [],
            }
        )
        if grant is not None:
            self.life.begin(grant, os.getpid(), 60)
        return grant

    def unregistered(self) -> Grant:
        """A grant that was decided and not yet begun."""
        message = {"container_id": "c", "rootfs": "/r", "annotations": {}, "reach": []}
        grant = self.admission.admit({**message, "env": {"MGPU_MEMORY_MIB": "512"}})
        assert grant is not None
        return grant

    def granted(self, container: str = "c1", **env: str) -> Grant:
        grant = self.admit(container, env=env or {"MGPU_MEMORY_MIB": "1024"})
        assert grant is not None
        return grant

    def ask(self, verb: str, **members: Any) -> dict[str, Any]:
        """The reply to a message, both checked by their schemas; Refusal when it is one."""
        message = {"version": 1, "verb": verb, **members}
        schemas.validate("control", message)
        reply = self.arbiter.verbs()[verb](message, Peer(os.getpid(), 0))
        schemas.validate(f"control#{verb}-reply", {"version": 1, "ok": True, **reply})
        return reply

    def close(self) -> None:
        self.life.close()
        self.loop.close()
        if self._made is not None:
            self._made.cleanup()
        self.engine.close()

    def turn(self) -> None:
        """Lets the event loop do what is due."""
        self.loop.run_until_complete(asyncio.sleep(0))
