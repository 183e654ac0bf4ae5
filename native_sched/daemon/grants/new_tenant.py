"""A grant as a tenant of the engine."""

from native_sched.daemon.engine import Engine
from native_sched.daemon.grants import memory_kind
from native_sched.daemon.grants.grants import Grant
from native_sched.daemon.node.config import NodeConfig


def add(engine: Engine, config: NodeConfig, grant: Grant) -> bool:
    """The tenant, its cards, how it holds them, and the kind of its memory. Whether its journal was there.
    OSError.
    """
    known = engine.add_tenant(grant.tenant)
    for card in grant.cards:
        engine.grant(grant.tenant, card.index, card.memory_mib << 20)
    if grant.alone:
        engine.whole(grant.tenant)
    engine.capabilities(grant.tenant, grant.capabilities)
    memory_kind.tell(engine, config, grant)
    return known
