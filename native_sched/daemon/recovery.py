"""What a worker does first: it goes on where the one before was, before it does anything else.

Containers that run wait meanwhile with each call that they make, so nothing is imported here that takes long; what
follows on the recovery, such as looking after processes, is done once they are served.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from native_sched.daemon import freezer, process_id
from native_sched.daemon.engine import Engine
from native_sched.daemon.grant_store import Found
from native_sched.daemon.grants import Grant, Grants
from native_sched.daemon.listeners import Listeners
from native_sched.daemon.log import LOG
from native_sched.daemon.pause import pauser
from native_sched.daemon.scheduling import Scheduling


@dataclass(kw_only=True)
class Recovered:
    """What a worker found of the one before. forgotten: what the journal had of containers that are gone.

    duration_ms: from the start of the process, its interpreter included, to when all were served again.
    """

    tenants: int = 0
    from_journal: int = 0
    listeners: int = 0
    calls: int = 0
    ended: int = 0
    failed: int = 0
    forgotten: int = 0
    duration_ms: float = 0.0


def since_start_ms() -> float:
    """Since the process was started, by the kernel's clock: to 10 ms."""
    ticks = process_id.start_time(os.getpid())
    return (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")) * 1000


def take_over(
    engine: Engine,
    grants: Grants,
    scheduling: Scheduling,
    listeners: Listeners,
    found: Found,
    hand_over: Callable[[Listeners], None],
) -> Recovered:
    """Has the engine serve what the worker before served. hand_over: has the holder give all its listeners.

    One container that cannot be taken over is no reason to leave the others waiting.
    """
    done = Recovered(tenants=len(found.grants))
    for grant in found.grants:
        grants.add(grant)
        _see_process(grant, done)
        try:
            done.from_journal += _tell(engine, grant)
        except OSError as error:
            grant.served = False
            done.failed += 1
            LOG.error(
                "grant-not-taken-over", container=grant.container_id, grant=grant.id, why=error.strerror
            )
    try:
        scheduling.apply()
    except OSError as error:
        LOG.error("not-scheduled-as-before", why=error.strerror)
    pause = pauser(engine)
    for grant in found.grants:
        if grant.paused and grant.served:
            pause(grant, True)
    listeners.recovering = True
    hand_over(listeners)
    listeners.recovering = False
    _see_freezers(found.grants, pause)
    done.listeners, done.calls = listeners.taken, listeners.answered
    done.forgotten = engine.recovered()
    done.duration_ms = round(since_start_ms(), 1)
    return done


def _see_process(grant: Grant, done: Recovered) -> None:
    """Whether its container is there."""
    if grant.state != "bound":
        return
    assert grant.pid is not None  # it is bound
    if not process_id.lives(grant.pid, grant.pid_start):
        # Its grant stays until nothing of it is left in the driver.
        grant.state = "draining"
        done.ended += 1
        LOG.info("ended-meanwhile", container=grant.container_id, grant=grant.id)


def _see_freezers(grants: Iterable[Grant], pause: Callable[[Grant, bool], None]) -> None:
    """Who was frozen or thawed while nobody looked. It is asked last: a call waits for none of it."""
    for grant in grants:
        frozen = _is_frozen(grant.pid) if grant.state == "bound" and grant.pid is not None else None
        if frozen is not None and frozen != grant.paused:
            pause(grant, frozen)


def _is_frozen(pid: int) -> bool | None:
    """None where it cannot be told."""
    file = freezer.state_file(pid)
    try:
        if file is None:
            return None
        with open(file.path, "rb") as state:
            return freezer.is_frozen(state.read())
    except OSError:
        return None


def _tell(engine: Engine, grant: Grant) -> bool:
    """All that the engine was told of the container, in the order in which it was; whether its journal was there."""
    known = engine.add_tenant(grant.tenant)
    for card in grant.cards:
        engine.grant(grant.tenant, card.index, card.memory_mib << 20)
    for node in grant.nodes:
        engine.add_node(grant.tenant, *node)
    return known
