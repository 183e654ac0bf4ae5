"""The holder dies, and the mgpud that goes on gives its listeners to the next one, under the ids that they
had.
"""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from native_sched.daemon.links.holder import KEPT_TEXT_MAX, HolderLink, Listener, shortened
from tests.support.holder import ALL, HEAD, HELLO, SERVING, Holder, holding, message, send, stand_in

MANY = 700
# An mgpud that comes back, sends this, and hangs.
HANGS = """
import socket, sys, time
link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
link.connect(sys.argv[1])
for word in sys.argv[2:]:
    link.send(bytes.fromhex(word))
time.sleep(60)
"""


async def soon(condition: Callable[[], bool], what: str) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"not within 10 s: {what}")


class Served:
    """A mgpud in the tests' own event loop."""

    def __init__(self, link: HolderLink) -> None:
        self.link = link
        self.got: dict[int, Listener] = {}

    def take(self, listener: Listener) -> None:
        assert listener.holder_id not in self.got
        self.got[listener.holder_id] = listener


@asynccontextmanager
async def served(holder: Holder) -> AsyncIterator[Served]:
    mgpud = Served(holder.mgpud())
    mgpud.link.read_all(mgpud.take)
    task = asyncio.get_running_loop().create_task(mgpud.link.serve(mgpud.take))
    try:
        yield mgpud
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        mgpud.link.close()
        for listener in mgpud.got.values():
            os.close(listener.fd)


def held_by(holder: Holder) -> dict[int, tuple[str, int]]:
    """What the holder has, by id: container and file number."""
    found: dict[int, tuple[str, int]] = {}

    def take(listener: Listener) -> None:
        found[listener.holder_id] = listener.container_id, os.fstat(listener.fd).st_ino
        os.close(listener.fd)

    # Of the process that is the mgpud already: it is not ended.
    again = holder.mgpud()
    again.read_all(take)
    again.close()
    return found


def killed(holder: Holder) -> None:
    holder.process.kill()
    holder.process.wait()


def test_next_holder_has_all_under_their_ids(tmp_path: Path) -> None:
    async def story() -> None:
        with holding(tmp_path) as first:
            files = first.arrives("a", "b", "c")
            await soon(lambda: first.status().listeners == 3, "they have come")
            async with served(first) as mgpud:
                ids = sorted(mgpud.got)
                mgpud.link.drop(ids[1])
                killed(first)
                await soon(lambda: not mgpud.link.connected, "the mgpud sees it")
                with holding(tmp_path) as second:
                    await soon(lambda: second.status().listeners == 2, "they are back")
                    [late] = second.arrives("late")
                    await soon(lambda: len(mgpud.got) == 4, "a new one is handed on")
                    assert max(mgpud.got) not in ids
                    assert held_by(second) == {
                        ids[0]: ("a", files[0]),
                        ids[2]: ("c", files[2]),
                        max(mgpud.got): ("late", late),
                    }

    asyncio.run(story())


def test_listeners_from_a_holders_absence_are_handed_on(tmp_path: Path) -> None:
    async def story() -> None:
        with holding(tmp_path) as first:
            async with served(first) as mgpud:
                killed(first)
                await soon(lambda: not mgpud.link.connected, "the mgpud sees it")
                with holding(tmp_path) as second:
                    second.arrives("early")
                    await soon(lambda: len(mgpud.got) == 1, "it comes")
                    assert list(held_by(second)) == list(mgpud.got)

    asyncio.run(story())


def test_full_table_comes_back(tmp_path: Path) -> None:
    async def story() -> None:
        with holding(tmp_path) as first:
            fd, _ = stand_in()
            for number in range(MANY):
                with first.runtime() as runtime:
                    send(runtime, message(f"c{number}"), [os.dup(fd)])
            os.close(fd)
            await soon(lambda: first.status().listeners == MANY, "they have come")
            async with served(first) as mgpud:
                killed(first)
                with holding(tmp_path) as second:
                    await soon(lambda: second.status().listeners == MANY, "they are back")
                    assert held_by(second).keys() == mgpud.got.keys()

    asyncio.run(story())


def test_copy_goes_with_its_container(tmp_path: Path) -> None:
    async def story() -> None:
        with holding(tmp_path) as holder:
            read, write = os.pipe()
            with holder.runtime() as runtime:
                send(runtime, message("short"), [read])
            await soon(lambda: holder.status().listeners == 1, "it has come")
            async with served(holder) as mgpud:
                [listener] = mgpud.got.values()
                copies = copies_of(listener.fd)
                os.close(write)
                await soon(lambda: copies_of(listener.fd) < copies, "the copy is closed")

    asyncio.run(story())


def copies_of(fd: int) -> int:
    file = os.fstat(fd).st_ino
    count = 0
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            count += os.fstat(int(number)).st_ino == file
    return count


def test_long_message_loses_its_annotations() -> None:
    long = message("c", annotations={"x": "y" * KEPT_TEXT_MAX})
    assert len(shortened(long)) < KEPT_TEXT_MAX
    assert json.loads(shortened(long))["state"] == json.loads(message("c"))["state"]
    assert shortened(message("c")) == message("c")


@pytest.mark.parametrize(
    "words", [[HEAD.pack(HELLO, 1, SERVING)], [HEAD.pack(HELLO, 1, SERVING), HEAD.pack(ALL, 0, 0)]]
)
def test_mgpud_that_hangs_as_it_comes_back_has_the_watchdogs_time(
    tmp_path: Path, words: list[bytes]
) -> None:
    """It serves already: it has no longer than any other that serves."""
    argv = [sys.executable, "-c", HANGS, str(tmp_path / "holder.sock"), *(word.hex() for word in words)]
    with holding(tmp_path, "--watchdog-ms", "1000") as holder, subprocess.Popen(argv) as mgpud:
        assert mgpud.wait(30) == -signal.SIGKILL
        found = re.search(r"has sent nothing for (\d+) ms: killed", holder.log())
        assert found
        assert int(found[1]) < 3000
