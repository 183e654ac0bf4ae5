"""The first thing that mgpud does: go on where the previous one was.

Running containers wait with each call meanwhile, so nothing is imported here that takes long. Work that
follows from the recovery, such as looking after processes, is done once they are served.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from native_sched.daemon.engine import Engine
from native_sched.daemon.grants import new_tenant
from native_sched.daemon.grants.grants import Grant, Grants
from native_sched.daemon.grants.pause import pauser
from native_sched.daemon.grants.scheduling import Scheduling
from native_sched.daemon.grants.store import Found
from native_sched.daemon.links.listeners import Listeners
from native_sched.daemon.log import LOG
from native_sched.daemon.node import freezer, process_id
from native_sched.daemon.node.config import NodeConfig

if TYPE_CHECKING:
    from native_sched.daemon.standby import Called


@dataclass(kw_only=True)
class Recovered:
    """What mgpud found of the previous one. forgotten: containers in the journal that are gone.

    duration_ms: from the start of the process, its interpreter included, until all were served again; a
    standby counts from when it was called. cpu_ms: processor time of that. stages_ms: the parts in order.
    """

    tenants: int = 0
    from_journal: int = 0
    listeners: int = 0
    calls: int = 0
    ended: int = 0
    failed: int = 0
    forgotten: int = 0
    duration_ms: float = 0.0
    cpu_ms: float = 0.0
    stages_ms: dict[str, float] = field(default_factory=dict)


def since_start_ms() -> float:
    """Since the process was started, by the kernel's clock: to 10 ms."""
    ticks = process_id.start_time(os.getpid())
    return (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")) * 1000


class Stages:
    """What a mgpud's beginning takes, one part after the other."""

    def __init__(self, called: Called | None = None) -> None:
        self._called = called
        self.ms = {"loaded": round(self.passed_ms(), 1)}
        self._last_ns = time.monotonic_ns()

    def passed_ms(self) -> float:
        """Since the process was started, or called where it stood by."""
        return (time.monotonic_ns() - self._called.at_ns) / 1e6 if self._called else since_start_ms()

    def cpu_ms(self) -> float:
        """Of the processor's time, since the same."""
        return (time.process_time_ns() - (self._called.cpu_ns if self._called else 0)) / 1e6

    def end(self, name: str) -> None:
        now_ns = time.monotonic_ns()
        self.ms[name] = round((now_ns - self._last_ns) / 1e6, 1)
        self._last_ns = now_ns


def take_over(
    engine: Engine,
    grants: Grants,
    scheduling: Scheduling,
    listeners: Listeners,
    found: Found,
    hand_over: Callable[[Listeners], None],
    stages: Stages,
    config: NodeConfig,
) -> Recovered:
    """Has the engine serve what the previous mgpud served. hand_over: has the holder give all its listeners.

    One container that cannot be taken over is no reason to leave the others waiting.
    """
    done = Recovered(tenants=len(found.grants))
    for grant in found.grants:
        grants.add(grant)
        try:
            done.from_journal += _tell(engine, config, grant)
        except OSError as error:
            grant.served = False
            done.failed += 1
            LOG.error(
                "grant-not-taken-over", container=grant.container_id, grant=grant.id, why=error.strerror
            )
    stages.end("tenants")
    try:
        scheduling.apply()
    except OSError as error:
        LOG.error("not-scheduled-as-before", why=error.strerror)
    pause = pauser(engine)
    for grant in found.grants:
        if grant.paused and grant.served:
            pause(grant, True)
    stages.end("scheduler")
    listeners.recovering = True
    hand_over(listeners)
    listeners.recovering = False
    stages.end("listeners")
    # No call waits for the answer that is asked for last.
    for grant in found.grants:
        _see_process(grant, done)
    _see_freezers(found.grants, pause)
    done.listeners, done.calls = listeners.taken, listeners.answered
    done.forgotten = engine.recovered()
    done.stages_ms = stages.ms
    done.cpu_ms = round(stages.cpu_ms(), 1)
    done.duration_ms = round(stages.passed_ms(), 1)
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
    """The containers that were frozen or thawed while no mgpud ran."""
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


def _tell(engine: Engine, config: NodeConfig, grant: Grant) -> bool:
    """All that the engine was told of the container, in order, and whether its journal was there."""
    known = new_tenant.add(engine, config, grant)
    for node in grant.own_nodes:
        engine.add_node(grant.tenant, *node)
    # A number may be another process's by now, which is in no namespace of the container's.
    if grant.pid is not None and process_id.lives(grant.pid, grant.pid_start):
        engine.pid_space(grant.tenant, process_id.pid_namespace(grant.pid))
    return known
