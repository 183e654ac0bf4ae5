"""Containers whose main process has nobody to answer its calls: its listener went with its last holder.

That a main process ought to have a listener is known by what it executes: when it is bound that is the
runtime, which loads the filter and sends the listener before it executes the container's own program. So one
that still executes the runtime has yet to send it, however long it waits to be started.
"""

import asyncio
from collections.abc import Awaitable, Callable

from native_sched.daemon.grants.grants import Grant, Grants
from native_sched.daemon.log import LOG
from native_sched.daemon.node import process_id

LOOK_S = 1.0


def is_without(grant: Grant) -> bool:
    """Whether the container's own program runs and no listener of its main process has come so far."""
    if grant.listens or grant.state != "bound" or grant.pid is None or grant.program is None:
        return False
    return process_id.program(grant.pid) not in (None, grant.program)


class LostListeners:
    """Says which they are, and ends them if the node's settings say so.

    answers: whether the holder does its work; what it was sent before is here by the next look.
    """

    def __init__(
        self,
        grants: Grants,
        answers: Callable[[], Awaitable[bool]],
        kill: Callable[[Grant], None],
        *,
        end: bool,
    ) -> None:
        self._grants = grants
        self._answers = answers
        self._kill = kill
        self._end = end
        # Nonces of those that were without one before the holder answered.
        self._before: set[str] = set()
        self.found = 0

    async def run(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        without = [grant for grant in self._grants if not grant.lost_listener and is_without(grant)]
        for grant in without:
            if grant.nonce in self._before:
                self._lost(grant)
        self._before = {grant.nonce for grant in without} if without and await self._answers() else set()

    def _lost(self, grant: Grant) -> None:
        grant.lost_listener = True
        self.found += 1
        LOG.error("lost-listener", container=grant.container_id, what="ended" if self._end else "kept")
        if self._end:
            self._kill(grant)
