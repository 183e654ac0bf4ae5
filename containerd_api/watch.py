"""Watches containerd and the kernel's messages about GPUs for mgpud, as a process of its own:
`python -m containerd_api.watch SOCKET…`.

A process, so that nothing that a containerd does can disturb the arbiter, and that the memory of gRPC and
pyroute2 is not the arbiter's. Both ways one JSON object a line. On stdin, which containers matter:
{"watch": ID}, {"forget": ID}; its end is the end. On stdout, of those containers alone:

    {"container": ID, "event": "paused", "exit_status": 0}
    {"container": ID, "known": {"address": …, "namespace": …, "name": …, "runtime": …, "task": …}}

and of each socket {"address": …, "state": "connected 1.6.20"} whenever that changes. Of GPUs and their
driver, whose messages are hints, {"uevent": "bind", "path": "/devices/…"}; "listening" and "missed" are such
hints too.
"""

import asyncio
import json
import os
import signal
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TextIO

from containerd_api import names, uevents
from containerd_api.client import Container, Containerd, ContainerdError, Event, Task

FIRST_PAUSE_S, LAST_PAUSE_S = 0.5, 30.0
# A connection that lasted so long was a good one: the next one is tried after the first pause again.
GOOD_S = 10.0
# A containerd may make containers up. These are none of mgpu's; of mgpu's it may report only so often.
EVENTS_PER_S = 200
LINE_MAX_BYTES = 64 << 10
TEXT_MAX_CHARS = 256
NICE = 5


def is_socket(path: str) -> bool:
    with suppress(OSError):
        return stat.S_ISSOCK(os.stat(path).st_mode)
    return False


class _Asked:
    """Containers to be looked up, each once however often it is asked for."""

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}
        self._some = asyncio.Event()

    def ask(self, container_id: str) -> None:
        self._ids[container_id] = None
        self._some.set()

    async def take(self) -> str:
        await self._some.wait()
        container_id = next(iter(self._ids))
        del self._ids[container_id]
        if not self._ids:
            self._some.clear()
        return container_id


class Watch:
    """One or several containerds; `tell` gets what mgpud is to hear."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self.wanted: set[str] = set()
        self._asked: dict[str, _Asked] = {}
        self._states: dict[str, str] = {}

    def tell(self, **members: Any) -> None:
        print(json.dumps(members), file=self._out, flush=True)

    def _is(self, address: str, state: str) -> None:
        """Reported once: a socket without a listener may stay for ever."""
        if self._states.get(address) != state:
            self._states[address] = state
            self.tell(address=address, state=state[:TEXT_MAX_CHARS])

    def read(self, line: bytes) -> None:
        """A line of stdin."""
        message = json.loads(line)
        if "forget" in message:
            self.wanted.discard(message["forget"])
        elif message["watch"] not in self.wanted:
            self.wanted.add(message["watch"])
            for asked in self._asked.values():
                asked.ask(message["watch"])

    async def uevents(self) -> None:
        """For ever. Where there is no such socket mgpud looks after its cards without hints."""
        try:
            await uevents.watch(lambda action, path: self.tell(uevent=action, path=path[:TEXT_MAX_CHARS]))
        except OSError as error:
            self.tell(uevent="unheard", path=str(error)[:TEXT_MAX_CHARS])
            await asyncio.Event().wait()

    async def watch(self, address: str) -> None:
        """For ever: what this containerd says, whether it is there or comes and goes."""
        loop = asyncio.get_running_loop()
        pause_s = FIRST_PAUSE_S
        while True:
            began = loop.time()
            if is_socket(address):
                try:
                    await self._connected(address)
                except ContainerdError as error:
                    self._is(address, str(error))
            if loop.time() - began > GOOD_S:
                pause_s = FIRST_PAUSE_S
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LAST_PAUSE_S)

    async def _connected(self, address: str) -> None:
        async with Containerd(address) as containerd:
            version = await containerd.version()
            self._is(address, f"connected {version}")
            asked = self._asked[address] = _Asked()
            events = asyncio.create_task(self._events(containerd, asked))
            lookups = asyncio.create_task(self._lookups(containerd, address, asked))
            try:
                # Events first: what happens while it looks is looked at once more, and not missed.
                for container_id in self.wanted:
                    asked.ask(container_id)
                done, _ = await asyncio.wait({events, lookups}, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    each.result()
            finally:
                del self._asked[address]
                for each in (events, lookups):
                    each.cancel()
                await asyncio.gather(events, lookups, return_exceptions=True)

    async def _events(self, containerd: Containerd, asked: _Asked) -> None:
        async for event in containerd.events():
            if event.container_id not in self.wanted:
                continue
            if not event.exec_id:
                self._tell_event(event)
            asked.ask(event.container_id)
            await asyncio.sleep(1 / EVENTS_PER_S)
        raise ContainerdError("it has ended the stream of events")

    def _tell_event(self, event: Event) -> None:
        self.tell(container=event.container_id, event=event.kind, exit_status=event.exit_status)

    async def _lookups(self, containerd: Containerd, address: str, asked: _Asked) -> None:
        while True:
            container_id = await asked.take()
            if container_id in self.wanted and (known := await _find(containerd, container_id)):
                self.tell(container=container_id, known={"address": address, **_shown(*known)})


async def _find(containerd: Containerd, container_id: str) -> tuple[Container, Task | None] | None:
    """The container of that id, in whichever namespace it is."""
    for namespace in await containerd.namespaces():
        found = await containerd.container(namespace, container_id)
        if found is not None:
            return found, await containerd.task(namespace, container_id)
    return None


def _shown(container: Container, task: Task | None) -> dict[str, str | None]:
    called = names.name(container.labels)
    return {
        "namespace": container.namespace[:TEXT_MAX_CHARS],
        "name": called and called[:TEXT_MAX_CHARS],
        "runtime": container.runtime[:TEXT_MAX_CHARS],
        "task": task.status if task else "none",
    }


async def _read_stdin(watch: Watch) -> None:
    reader = asyncio.StreamReader(limit=LINE_MAX_BYTES)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    while line := await reader.readline():
        watch.read(line)


async def _main(addresses: Sequence[str]) -> None:
    watch = Watch(sys.stdout)
    tasks = [asyncio.create_task(watch.watch(address)) for address in addresses]
    tasks.append(asyncio.create_task(_read_stdin(watch)))
    tasks.append(asyncio.create_task(watch.uevents()))
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def main(addresses: Sequence[str]) -> int:
    """Until the end of stdin."""
    # ^C in mgpud's terminal is mgpud's to act on.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICE)
    with suppress(BrokenPipeError):
        asyncio.run(_main(addresses))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
