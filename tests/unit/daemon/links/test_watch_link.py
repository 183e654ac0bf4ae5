"""mgpud's end: what its watcher tells goes into grants, and whatever becomes of the watcher, mgpud goes
on."""

import asyncio
import json
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from native_sched.daemon.grants.containerd_task import ContainerdTask
from native_sched.daemon.grants.grants import Grant, Grants
from native_sched.daemon.links import watch as watch_link
from native_sched.daemon.links.watch import WatchLink
from tests.unit.grant_support import grant

KNOWN = {"address": "/a", "namespace": "default", "name": "job", "runtime": "r", "task": "running"}


@dataclass
class World:
    grants: Grants = field(default_factory=Grants)
    frozen: list[tuple[str, bool]] = field(default_factory=list)
    hints: list[bool] = field(default_factory=list)

    def link(self, *addresses: Path, script: str = "") -> WatchLink:
        def argv(_addresses: Sequence[str]) -> list[str]:
            return [sys.executable, "-c", script]

        return WatchLink(
            [str(each) for each in addresses],
            self.grants,
            lambda grant, frozen: self.frozen.append((grant.container_id, frozen)),
            lambda: self.hints.append(True),
            argv,
        )


@pytest.fixture
def world() -> World:
    made = World()
    made.grants.add(grant())
    return made


def told(**members: Any) -> bytes:
    return json.dumps(members).encode() + b"\n"


def of(world: World, container_id: str = "c1") -> Grant:
    [found] = [each for each in world.grants if each.container_id == container_id]
    return found


def test_containerd_task_is_in_the_grant(world: World) -> None:
    link = world.link()
    link.heard(told(container="c1", known=KNOWN))
    link.heard(told(container="stranger", known=KNOWN))
    assert of(world).containerd == ContainerdTask(
        address="/a", namespace="default", name="job", runtime="r", task="running"
    )


def test_pauses_are_handed_on(world: World) -> None:
    link = world.link()
    for event in ("paused", "resumed", "start", "exit"):
        link.heard(told(container="c1", event=event, exit_status=0))
        link.heard(told(container="stranger", event=event, exit_status=0))
    assert world.frozen == [("c1", True), ("c1", False)]


def test_kill_for_memory_is_counted(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    link = world.link()
    link.heard(told(container="c1", event="oom"))
    link.heard(told(container="c1", known=KNOWN))
    for _ in range(2):
        link.heard(told(container="c1", event="oom"))
    link.heard(told(container="c1", known={**KNOWN, "task": "stopped"}))
    seen = of(world).containerd
    assert seen is not None
    assert (seen.oom_kills, seen.task) == (2, "stopped")
    assert "event=host-out-of-memory container=c1" in capfd.readouterr().err


def test_end_is_told_when_the_grant_is_gone_already(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    world.grants.remove(of(world))
    world.link().heard(told(container="c1", event="exit", exit_status=137))
    assert "event=ended container=c1 status=137" in capfd.readouterr().err


@pytest.mark.parametrize("line", [b"\n", b"null\n", b"[1]\n", b"{\n"])
def test_malformed_line_is_refused(world: World, line: bytes) -> None:
    with pytest.raises(ValueError):
        world.link().heard(line)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("LOOK_S", 0.02), ("FIRST_PAUSE_S", 0.02)):
        monkeypatch.setattr(watch_link, name, value)


def serve(link: WatchLink, until: Callable[[], bool] = lambda: False, seconds: float = 60.0) -> bool:
    """Runs it until something is so, and says whether it came to be within so many seconds."""

    async def for_a_while() -> bool:
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(link.run())
        end = loop.time() + seconds
        while not (done := until()) and loop.time() < end:
            await asyncio.sleep(0.01)
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return done

    return asyncio.run(for_a_while())


def said(path: Path) -> str:
    return path.read_text() if path.exists() else ""


@pytest.fixture
def there(tmp_path: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "c.sock"))
    return tmp_path / "c.sock"


WRITES_DOWN = "import sys; line = sys.stdin.readline(); open({path!r}, 'a').write(line); sys.stdin.read()"


def test_watcher_is_told_of_containers_and_runs_without_any(
    world: World, quick: None, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    script = WRITES_DOWN.format(path=str(started))
    assert serve(world.link(script=script), lambda: said(started) == '{"watch": "c1"}\n')
    started.unlink()
    world.grants.remove(of(world))
    assert serve(world.link(script=f"open({str(started)!r}, 'w').close(); " + script), started.exists)


def test_container_whose_grant_is_gone_matters_for_some_looks_more(world: World, quick: None) -> None:
    """containerd may tell of its end only then."""
    looks = 0

    class Stdin:
        lines: ClassVar[list[dict[str, str]]] = []

        def write(self, line: bytes) -> None:
            self.lines.append(json.loads(line))

        async def drain(self) -> None:
            nonlocal looks
            looks += 1
            if looks == 2:
                world.grants.remove(of(world))
            assert self.lines == [{"watch": "c1"}] or looks >= 2 + watch_link.LOOKS - 1
            if len(self.lines) > 1:
                raise EOFError

    with pytest.raises(EOFError):
        asyncio.run(world.link()._tell(cast("asyncio.StreamWriter", Stdin())))
    assert Stdin.lines[1:] == [{"forget": "c1"}]


def test_message_about_a_card_is_handed_on(world: World) -> None:
    world.link().heard(told(uevent="bind", path="/devices/pci0000:00/0000:00:09.0"))
    assert world.hints == [True]


@pytest.mark.parametrize(
    "script",
    [
        "raise SystemExit(1)",
        "print('no message', flush=True); import time; time.sleep(60)",
        "print('x' * 100000, flush=True); import time; time.sleep(60)",
        "import os, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.close(1); os.close(0); signal.pause()",
    ],
)
def test_watcher_that_fails_is_started_again(
    world: World, quick: None, tmp_path: Path, there: Path, script: str
) -> None:
    started = tmp_path / "started"
    count = f"open({str(started)!r}, 'a').write('.'); "
    assert serve(world.link(there, script=count + script), lambda: len(said(started)) >= 2)


def test_watcher_that_cannot_be_started(world: World, quick: None, there: Path) -> None:
    link = WatchLink([str(there)], world.grants, lambda *_: None, lambda: None, lambda _: ["/nowhere"])
    serve(link, seconds=0.3)


def test_watcher_that_talks_all_the_time_does_not_keep_mgpud_from_its_work(
    world: World, quick: None, there: Path
) -> None:
    script = (
        f"import sys\nwhile True: sys.stdout.write({told(container='c1', event='start').decode()!r} * 100)"
    )

    async def work() -> float:
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(world.link(there, script=script).run())
        await asyncio.sleep(0.5)
        worst = 0.0
        for _ in range(50):
            began = loop.time()
            await asyncio.sleep(0.005)
            worst = max(worst, loop.time() - began)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return worst

    # It writes without end: who reads all of it would never come to anything else.
    assert asyncio.run(work()) < 10
