"""mgpud tells the holder that it serves: an mgpud that no longer does is killed, and the next one goes
on."""

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import Any

from native_sched.daemon.control.health import STUCK_S, Watchdog
from native_sched.daemon.control.server import Peer, Reply, Verb
from native_sched.daemon.links.holder import HolderLink
from native_sched.daemon.links.share import STARTS_MAX
from oci_specs.refusal import Refusal

BEAT_S = 1.0


class Heartbeat:
    """Beats in the event loop, so that this has to turn too, and as long as the watchdog looks."""

    def __init__(self, watchdog: Watchdog, link: HolderLink) -> None:
        self._watchdog = watchdog
        self._link = link
        self._looks = -1
        self._blind_s = 0.0

    async def run(self) -> None:
        """For ever."""
        while True:
            self.beat()
            await asyncio.sleep(BEAT_S)

    def beat(self) -> None:
        """Called every BEAT_S."""
        self._blind_s = self._blind_s + BEAT_S if self._watchdog.looks == self._looks else 0.0
        self._looks = self._watchdog.looks
        if self._watchdog.turning and self._blind_s < STUCK_S:
            self._link.alive()


def end_with(loop: asyncio.AbstractEventLoop, pid: int, end: Callable[[], None]) -> None:
    """Calls `end` when that process has ended, or now if it has."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        end()
        return

    def ended() -> None:
        loop.remove_reader(fd)
        os.close(fd)
        end()

    loop.add_reader(fd, ended)


def with_holder(admit: Verb, connected: Callable[[], bool], held: Callable[[], int] = lambda: 0) -> Verb:
    """The verb `admit`, which refuses while no holder would take the new container's listener.

    held: how many the holder has.
    """

    def answer(message: Mapping[str, Any], peer: Peer) -> Reply:
        if not connected():
            raise Refusal(
                "no-holder",
                "mgpu-holder is not running, so nobody takes the container's system calls",
                "it is started again by itself; then create the container anew",
            )
        if held() >= STARTS_MAX:
            raise Refusal(
                "listeners-full",
                f"mgpu-holder has {held()} listeners, and the container's own might find no room",
                "end processes that `exec` has left in containers: mgpu health says how many there are",
            )
        return admit(message, peer)

    return answer
