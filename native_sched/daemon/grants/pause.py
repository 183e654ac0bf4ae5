"""A frozen container's work is suspended with it."""

from collections.abc import Callable

from native_sched.daemon.engine import Engine
from native_sched.daemon.grants.grants import Grant
from native_sched.daemon.log import LOG


def pauser(
    engine: Engine, note: Callable[[Grant], object] = lambda grant: None
) -> Callable[[Grant, bool], None]:
    """Reports each container as frozen (True) or thawed (False); note: writes the grant down."""

    def pause(grant: Grant, paused: bool) -> None:
        grant.paused = paused
        note(grant)
        if not grant.cards or not grant.served:
            return  # nothing of it is scheduled
        try:
            engine.pause(grant.tenant, paused)
        except OSError as error:
            what = "suspended" if paused else "resumed"
            LOG.error("work-not-" + what, container=grant.container_id, why=error.strerror)

    return pause
