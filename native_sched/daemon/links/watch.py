"""mgpud's end of containerd_api.watch, the process that speaks to containerd for it and hears of cards.

Whatever becomes of it, the arbiter goes on; it is started again after a pause.
"""

import asyncio
import json
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from native_sched.daemon.grants.containerd_task import ContainerdTask
from native_sched.daemon.grants.grants import Grant, Grants
from native_sched.daemon.log import LOG

# How soon a new container is asked about.
LOOK_S, LOOKS = 1.0, 5
FIRST_PAUSE_S, LAST_PAUSE_S = 1.0, 60.0
STOP_S = 5.0
LINE_MAX_BYTES = 16 << 10
_EVENTS = {"paused": True, "resumed": False}
_FACTS = ("address", "namespace", "name", "runtime", "task")


def command(addresses: Sequence[str]) -> list[str]:
    return [sys.executable, "-Im", "containerd_api.watch", *addresses]


class WatchLink:
    """Keeps containerd's reports in the grants.

    frozen(grant, value): it was paused or resumed. cards(): there was a message about a card or the driver.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        grants: Grants,
        frozen: Callable[[Grant, bool], None],
        cards: Callable[[], None],
        argv: Callable[[Sequence[str]], list[str]] = command,
    ) -> None:
        self._addresses = addresses
        self._grants = grants
        self._frozen = frozen
        self._cards = cards
        self._argv = argv
        self._told: set[str] = set()

    async def run(self) -> None:
        """For ever."""
        loop = asyncio.get_running_loop()
        pause_s = FIRST_PAUSE_S
        while True:
            began = loop.time()
            try:
                await self._served()
            except (OSError, ValueError) as error:
                LOG.warning("not-watched", why=error, what="containerd, and messages about GPUs")
            if loop.time() - began > LAST_PAUSE_S:
                pause_s = FIRST_PAUSE_S
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LAST_PAUSE_S)

    async def _served(self) -> None:
        """One life of the process."""
        process = await asyncio.create_subprocess_exec(
            *self._argv(self._addresses),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_MAX_BYTES,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        self._told = set()
        reading = asyncio.create_task(self._read(process.stdout))
        telling = asyncio.create_task(self._tell(process.stdin))
        try:
            done, _ = await asyncio.wait({reading, telling}, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
        finally:
            reading.cancel()
            telling.cancel()
            await asyncio.gather(reading, telling, return_exceptions=True)
            await _stop(process)

    async def _tell(self, stdin: asyncio.StreamWriter) -> None:
        """The containers to watch. One without a grant stays for a few polls, so that its end is heard of."""
        looks: deque[set[str]] = deque(maxlen=LOOKS)
        while True:
            looks.append({grant.container_id for grant in self._grants if grant.state == "bound"})
            wanted = set().union(*looks)
            for gone in self._told - wanted:
                stdin.write(json.dumps({"forget": gone}).encode() + b"\n")
            for new in wanted - self._told:
                stdin.write(json.dumps({"watch": new}).encode() + b"\n")
            self._told = wanted
            await stdin.drain()
            await asyncio.sleep(LOOK_S)

    async def _read(self, stdout: asyncio.StreamReader) -> None:
        while line := await stdout.readline():
            self.heard(line)
            # Lines that are there already are no reason to wait for: others have their turn in between.
            await asyncio.sleep(0)
        raise OSError("the process that watches it has ended")

    def heard(self, line: bytes) -> None:
        """One line of the process's; ValueError when it is none."""
        message = json.loads(line)
        if not isinstance(message, dict):
            raise ValueError("its watcher says what is no object")
        if "state" in message:
            LOG.info("containerd", address=message.get("address"), state=message["state"])
            return
        if "uevent" in message:
            LOG.info("uevent", action=message["uevent"], path=message.get("path"))
            self._cards()
            return
        if message.get("event") == "exit":
            # Its grant may be gone already: the kernel reports the end of a process before containerd does.
            LOG.info("ended", container=message.get("container"), status=message.get("exit_status"))
        grant = self._grant(message.get("container"))
        if grant is None:
            return
        if isinstance(message.get("known"), dict):
            facts: dict[str, Any] = {name: message["known"].get(name) for name in _FACTS}
            before = grant.containerd.oom_kills if grant.containerd else 0
            grant.containerd = ContainerdTask(**facts, oom_kills=before)
        else:
            self._happened(grant, str(message.get("event")))

    def _grant(self, container_id: object) -> Grant | None:
        return next((grant for grant in self._grants if grant.container_id == container_id), None)

    def _happened(self, grant: Grant, event: str) -> None:
        if event in _EVENTS:
            self._frozen(grant, _EVENTS[event])
        elif event == "oom":
            LOG.info("host-out-of-memory", container=grant.container_id)
            if grant.containerd is not None:
                grant.containerd = replace(grant.containerd, oom_kills=grant.containerd.oom_kills + 1)


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Kills it, since it has no state. asyncio waits for its pipes too, which end once they are read, but for
    those that a child of it has. The next one does not wait for that.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    with suppress(ProcessLookupError):
        process.kill()
    with suppress(TimeoutError):
        async with asyncio.timeout(STOP_S):
            while await process.stdout.read(LINE_MAX_BYTES):
                pass
            await process.wait()
