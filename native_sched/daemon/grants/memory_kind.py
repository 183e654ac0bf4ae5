"""The kind of a container's memory to the others on its cards, for the engine."""

from native_sched.daemon.engine import Engine
from native_sched.daemon.engine_abi import MemoryKind
from native_sched.daemon.grants.grants import Grant, ReclaimState
from native_sched.daemon.node.config import NodeConfig

# At most what CUDA makes for a move, before it frees anything: a channel, and staging buffers for copies.
STAGING_BYTES = 64 << 20


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
    """Reserve a moving container's memory for it until the move is over: CUDA needs some before it frees
    any, so online gets none of it in between. Whether there is room for the staging buffers too. OSError.
    """
    size = grant.reclaim.bytes
    # Without them first: while a call of online's is tried, all that it asks for counts as taken.
    engine.reclaim(grant.tenant, closed=True, room_bytes=size)
    try:
        room = {card: held + STAGING_BYTES for card, held in size.items()}
        engine.reclaim(grant.tenant, closed=True, room_bytes=room)
    except OSError:
        return False
    return True
