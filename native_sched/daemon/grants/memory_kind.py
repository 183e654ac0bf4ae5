"""The kind of a container's memory to the others on its cards, for the engine."""

from __future__ import annotations

from native_sched.daemon.engine import Engine
from native_sched.daemon.engine_memory import MemoryKind
from native_sched.daemon.grants.grants import Grant, ReclaimState
from native_sched.daemon.node.config import NodeConfig

# What CUDA makes for a move itself, before it frees anything: a channel and memory for copies.
WAY_BYTES = 64 << 20


def tell(engine: Engine, config: NodeConfig, grant: Grant) -> None:
    """No kind on a node that lends no memory, but for what it has lent before. OSError."""
    if grant.reclaimable:
        engine.memory(grant.tenant, MemoryKind.RECLAIMABLE)
    elif config.offline_overcommit and grant.cards:
        engine.memory(grant.tenant, MemoryKind.ONLINE if grant.qos == "online" else MemoryKind.KEPT)
    state = grant.reclaim.state
    if state == ReclaimState.EVICTED or grant.reclaim.saved:
        engine.reclaim(grant.tenant, closed=True)
    elif state != ReclaimState.RUNNING:
        keep_room(engine, grant)


def keep_room(engine: Engine, grant: Grant) -> bool:
    """For the memory of a container that moves, on the way off its GPUs too: CUDA needs some before it frees
    any, and online gets what is freed once all is. Whether there is so much for the way itself. OSError.
    """
    size = grant.reclaim.bytes
    # First: a call of online's that is tried at this moment counts as having what it asks for.
    engine.reclaim(grant.tenant, closed=True, room_bytes=size)
    try:
        room = {card: held + WAY_BYTES for card, held in size.items()}
        engine.reclaim(grant.tenant, closed=True, room_bytes=room)
    except OSError:
        return False
    return True
