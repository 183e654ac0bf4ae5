"""The kind of a container's memory to the others on its cards, for the engine."""

from __future__ import annotations

from native_sched.daemon.engine import Engine
from native_sched.daemon.engine_memory import MemoryKind
from native_sched.daemon.grants.grants import Grant, ReclaimState
from native_sched.daemon.node.config import NodeConfig


def tell(engine: Engine, config: NodeConfig, grant: Grant) -> None:
    """No kind on a node that lends no memory, but for what it has lent before. OSError."""
    if grant.reclaimable:
        engine.memory(grant.tenant, MemoryKind.RECLAIMABLE)
    elif config.offline_overcommit and grant.cards:
        engine.memory(grant.tenant, MemoryKind.ONLINE if grant.qos == "online" else MemoryKind.KEPT)
    if grant.reclaim.state != ReclaimState.RUNNING:
        room = grant.reclaim.bytes if grant.reclaim.state == ReclaimState.RESTORING else None
        engine.reclaim(grant.tenant, closed=True, room_bytes=room)
