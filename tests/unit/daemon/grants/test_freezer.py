"""The kernel's freezer: where its state is, what it says, and that a container's pause is told once."""

import asyncio
import os
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest

from native_sched.daemon.engine import Engine
from native_sched.daemon.grants import freezer_watch
from native_sched.daemon.grants.freezer_watch import FreezerWatch
from native_sched.daemon.grants.grants import Grant, Grants
from native_sched.daemon.grants.pause import pauser
from native_sched.daemon.node import freezer
from native_sched.daemon.node.freezer import StateFile
from tests.support.waiting import until
from tests.unit.arbiter_support import FakeEngine
from tests.unit.grant_support import grant

UNIFIED = Path("/sys/fs/cgroup/unified")


def a_process(proc: Path, *lines: str) -> None:
    (proc / "7").mkdir(parents=True)
    (proc / "7" / "cgroup").write_text("".join(f"{line}\n" for line in lines))


@pytest.mark.parametrize(
    ("lines", "layout", "file"),
    [
        (
            ["4:cpu:/", "6:freezer:/docker/c1", "0::/x"],
            "",
            StateFile("freezer/docker/c1/freezer.state", False),
        ),
        (
            ["0::/system.slice/c1"],
            "cgroup.controllers",
            StateFile("system.slice/c1/cgroup.events", True),
        ),
        (["0::/c1"], "", StateFile("unified/c1/cgroup.events", True)),
        (["3:memory:/c1"], "", None),
    ],
)
def test_freezer_state_file_is_found(
    tmp_path: Path, lines: list[str], layout: str, file: StateFile | None
) -> None:
    a_process(tmp_path / "proc", *lines)
    (tmp_path / "cg").mkdir()
    if layout:
        (tmp_path / "cg" / layout).touch()
    found = freezer.state_file(7, proc=str(tmp_path / "proc"), cgroups=str(tmp_path / "cg"))
    assert found == (file and StateFile(str(tmp_path / "cg" / file.path), file.tells))


def test_process_that_is_gone(tmp_path: Path) -> None:
    assert freezer.state_file(7, proc=str(tmp_path)) is None


@pytest.mark.parametrize(
    ("content", "frozen"),
    [
        (b"THAWED\n", False),
        (b"FREEZING\n", True),
        (b"FROZEN\n", True),
        (b"populated 1\nfrozen 0\n", False),
        (b"populated 1\nfrozen 1\n", True),
        (b"", False),
    ],
)
def test_freezer_state_is_read(content: bytes, frozen: bool) -> None:
    assert freezer.is_frozen(content) is frozen


class World:
    """One container under a freezer that is a file."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "freezer.state"
        self.grants = Grants()
        self.grants.add(grant())
        self.told: list[tuple[str, bool]] = []
        self.watch = FreezerWatch(self.grants, self.tell, self.state_file)
        self.say("THAWED")

    def tell(self, container: Grant, frozen: bool) -> None:
        self.told.append((container.container_id, frozen))

    def state_file(self, _pid: int) -> StateFile | None:
        return StateFile(str(self.file), tells=False) if self.file.exists() else None

    def say(self, state: str) -> None:
        self.file.write_text(f"{state}\n")

    @property
    def grant(self) -> Grant:
        [found] = self.grants
        return found


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.watch.close()


def test_freezer_change_is_reported_once(world: World) -> None:
    for state in ("THAWED", "FREEZING", "FROZEN", "FROZEN", "THAWED", "THAWED"):
        world.say(state)
        world.watch.look()
    assert world.told == [("c1", True), ("c1", False)]


@pytest.mark.parametrize("state", ["admitted", "draining"])
def test_freezer_watch_polls_running_containers_only(world: World, state: str) -> None:
    world.say("FROZEN")
    world.grant.state = state  # type: ignore[assignment]
    world.watch.look()
    world.watch.hint(world.grant, True)
    assert world.told == []


def test_engine_is_not_believed_where_the_kernel_speaks(world: World) -> None:
    world.watch.hint(world.grant, True)
    assert world.told == []
    world.say("FROZEN")
    world.watch.hint(world.grant, False)
    assert world.told == [("c1", True)]


def test_engine_is_believed_where_the_kernel_is_mute(world: World) -> None:
    world.file.unlink()
    world.watch.look()
    assert world.told == []
    world.watch.hint(world.grant, True)
    world.watch.look()
    world.watch.hint(world.grant, False)
    assert world.told == [("c1", True), ("c1", False)]


def test_freezer_watch_follows_a_move_to_another_cgroup(world: World, tmp_path: Path) -> None:
    world.watch.look()
    world.file = tmp_path / "other.state"
    world.say("FROZEN")
    world.watch.look()
    world.file.unlink()
    world.watch.look()
    world.say("THAWED")
    world.watch.look()
    assert world.told == [("c1", True), ("c1", False)]


def test_freezer_watch_leaks_no_descriptor(world: World) -> None:
    before = len(os.listdir("/proc/self/fd"))
    world.watch.look()
    assert len(os.listdir("/proc/self/fd")) == before + 1
    world.grants.remove(world.grant)
    world.watch.look()
    assert len(os.listdir("/proc/self/fd")) == before


def test_container_of_the_same_name_begins_anew(world: World) -> None:
    world.say("FROZEN")
    world.watch.look()
    world.grant.pid = 8
    world.watch.look()
    assert world.told == [("c1", True)] * 2


def test_frozen_container_is_polled_often(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freezer_watch, "LOOK_S", 20.0)
    monkeypatch.setattr(freezer_watch, "LOOK_FROZEN_S", 0.01)

    async def thawed() -> float:
        task = asyncio.create_task(world.watch.run())
        world.say("FROZEN")
        while world.told != [("c1", True)]:
            await asyncio.sleep(0.002)
        world.say("THAWED")
        began = asyncio.get_running_loop().time()
        while world.told != [("c1", True), ("c1", False)]:
            await asyncio.sleep(0.002)
        took = asyncio.get_running_loop().time() - began
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return took

    assert asyncio.run(asyncio.wait_for(thawed(), 60)) < 10


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """One of version 2's, with a process in it."""
    top = UNIFIED if UNIFIED.is_dir() else UNIFIED.parent
    if os.geteuid() != 0 or not (top / "cgroup.procs").exists():
        pytest.skip("needs root and a mounted cgroup2")
    path = top / f"mgpu-test-{secrets.token_hex(4)}"
    path.mkdir()
    process = subprocess.Popen(["sleep", "60"])
    try:
        (path / "cgroup.procs").write_text(str(process.pid))
        yield path
    finally:
        (path / "cgroup.freeze").write_text("0")
        process.kill()
        process.wait()

        def removed() -> bool:
            with suppress(OSError):
                path.rmdir()
            return not path.exists()

        until(removed, "the cgroup is empty")


def test_version_2_tells_at_once(cgroup: Path) -> None:
    grants = Grants()
    grants.add(grant())
    told: list[bool] = []
    watch = FreezerWatch(
        grants,
        lambda _grant, frozen: told.append(frozen),
        lambda _pid: StateFile(str(cgroup / "cgroup.events"), True),
    )

    async def frozen_and_thawed() -> list[float]:
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(watch.run())
        await asyncio.sleep(0.05)
        took = []
        for turn in range(6):
            began = loop.time()
            (cgroup / "cgroup.freeze").write_text("01"[turn % 2 == 0])
            while len(told) <= turn:
                await asyncio.sleep(0.001)
            took.append(loop.time() - began)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return took

    took = asyncio.run(asyncio.wait_for(frozen_and_thawed(), 60))
    watch.close()
    assert told == [True, False] * 3
    # Well before the next look, which is up to a second away.
    assert sorted(took)[len(took) // 2] < 0.25


def test_freezer_change_pauses_the_tenant(capfd: pytest.CaptureFixture[str]) -> None:
    engine = FakeEngine()
    engine.scheduled[1] = cast("tuple[object, int]", (0, 50))  # type: ignore[assignment]
    pause = pauser(cast(Engine, engine))
    with_card = grant(cards=("a card",))
    pause(with_card, True)
    assert (engine.paused, with_card.paused) == ({1: True}, True)
    pause(with_card, False)
    assert (engine.paused, with_card.paused) == ({1: False}, False)
    advisory = grant("c2", tenant=2)
    pause(advisory, True)
    assert advisory.paused
    assert capfd.readouterr().err == ""
    pause(grant("c3", tenant=3, cards=("a card",)), True)
    assert "event=work-not-suspended container=c3" in capfd.readouterr().err
