"""Whether containers with a GPU would start here, by the table of what they need."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from native_sched.daemon.control.server import Peer, Reply, Verb
from native_sched.daemon.log import LOG, Log
from runtime_hook import needs
from runtime_hook.needs import Missing, Place

# Runtimes that waited for this mgpud come first.
FIRST_S, PERIOD_S = 0.5, 5.0


class Starts:
    """missing: what was not there at the last look."""

    def __init__(self, place: Callable[[], Place], log: Log = LOG) -> None:
        self._place = place
        self._log = log
        self.missing: list[Missing] = []

    async def run(self) -> None:
        """For ever."""
        await asyncio.sleep(FIRST_S)
        while True:
            # The holder may not answer, nor may an engine.
            self._become(await asyncio.to_thread(needs.missing, self._place()))
            await asyncio.sleep(PERIOD_S)

    def _become(self, found: list[Missing]) -> None:
        before = {each.name for each in self.missing}
        for each in found:
            if each.name not in before:
                tell = self._log.error if each.stops == "all" else self._log.warning
                tell("cannot-start", need=each.name, why=each.what, hint=each.line)
        for name in sorted(before - {each.name for each in found}):
            self._log.info("can-start", need=name)
        self.missing = found

    def told_by(self, verb: Verb) -> Verb:
        """The verb, which tells of it too."""

        def answer(message: Mapping[str, Any], peer: Peer) -> Reply:
            return {**verb(message, peer), "missing": [each._asdict() for each in self.missing]}

        return answer
