"""Which containers have lost the listener of their main process, and what becomes of them."""

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from native_sched.daemon.grants.grants import Grant, Grants
from native_sched.daemon.links.holder import Listener
from native_sched.daemon.links.lost_listeners import LostListeners
from native_sched.daemon.node import device_nodes, process_id, record_file
from native_sched.daemon.node.config import NodeConfig
from oci_specs.request import Identity
from tests.support.waiting import until
from tests.unit.arbiter_support import World

# What a runtime is to the rule: a program that becomes another when it is told to.
RUNTIME = ["sh", "-c", "read go && exec sleep 60"]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(device_nodes, "identities", lambda *_arguments: [])
    made = World(NodeConfig(), tmp_path)
    yield made
    made.close()


@pytest.fixture
def init() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(RUNTIME, stdin=subprocess.PIPE) as made:
        yield made
        made.kill()


def start(init: subprocess.Popen[bytes]) -> None:
    assert init.stdin is not None
    before = process_id.program(init.pid)
    init.stdin.write(b"\n")
    init.stdin.flush()
    until(lambda: process_id.program(init.pid) != before, "it executes its own program")


def bound(world: World, init: subprocess.Popen[bytes]) -> Grant:
    grant = world.granted("a")
    world.life.bind(grant, init.pid)
    return grant


def arrives(world: World, grant: Grant, status: str = "creating") -> None:
    fd = os.memfd_create("listener")
    world.listeners.take(Listener(1, fd, grant.container_id, grant.nonce, status, grant.pid or 0))


class Looks:
    def __init__(self, world: World, *, end: bool = True) -> None:
        self.answers = True
        self.killed: list[Grant] = []

        async def answers() -> bool:
            return self.answers

        self._world = world
        self.of = LostListeners(world.grants, answers, self.killed.append, end=end)

    def look(self, times: int = 1) -> list[Grant]:
        for _ in range(times):
            self._world.loop.run_until_complete(self.of.look())
        return self.killed


def test_container_that_is_not_started_has_yet_to_send_its_listener(
    world: World, init: subprocess.Popen[bytes]
) -> None:
    bound(world, init)
    assert Looks(world).look(5) == []


def test_program_without_a_listener_is_ended_once_the_holder_has_answered(
    world: World, init: subprocess.Popen[bytes], capfd: pytest.CaptureFixture[str]
) -> None:
    grant = bound(world, init)
    start(init)
    looks = Looks(world)
    assert looks.look() == []
    assert looks.look(3) == [grant]
    assert "event=lost-listener container=a what=ended" in capfd.readouterr().err
    [row] = world.ask("list")["containers"]
    assert row["lost_listener"] is True
    assert looks.of.found == 1


def test_kept_container_is_only_told_of(
    world: World, init: subprocess.Popen[bytes], capfd: pytest.CaptureFixture[str]
) -> None:
    grant = bound(world, init)
    start(init)
    looks = Looks(world, end=False)
    assert looks.look(3) == []
    assert grant.lost_listener
    assert "what=kept" in capfd.readouterr().err


def test_kill_ends_the_first_process(world: World, init: subprocess.Popen[bytes]) -> None:
    world.life.kill(bound(world, init))
    assert init.wait(10) == -9


def test_silent_holder_is_waited_for(world: World, init: subprocess.Popen[bytes]) -> None:
    """The listener may be what it has not read."""
    grant = bound(world, init)
    start(init)
    looks = Looks(world)
    looks.answers = False
    assert looks.look(5) == []
    looks.answers = True
    assert looks.look() == []
    arrives(world, grant)
    assert looks.look(5) == []


def test_listener_of_an_exec_is_not_the_main_process_s(world: World, init: subprocess.Popen[bytes]) -> None:
    grant = bound(world, init)
    start(init)
    arrives(world, grant, "running")
    assert Looks(world).look(2) == [grant]


def test_listener_that_could_not_be_served_is_lost(world: World, init: subprocess.Popen[bytes]) -> None:
    grant = bound(world, init)
    del world.engine.tenants[grant.tenant]
    arrives(world, grant)
    assert world.link.dropped == [1]
    start(init)
    assert Looks(world).look(2) == [grant]


@pytest.mark.parametrize("gets_it_back", [True, False])
def test_next_mgpud_knows(world: World, init: subprocess.Popen[bytes], gets_it_back: bool) -> None:
    before = bound(world, init)
    arrives(world, before)
    start(init)
    assert Looks(world).look(2) == []
    [after] = world.store.load().grants
    assert (after.program, after.listens) == (before.program, False)
    world.grants.remove(before)
    world.grants.add(after)
    if gets_it_back:
        arrives(world, after)
    assert Looks(world).look(2) == ([] if gets_it_back else [after])


def test_record_of_an_earlier_mgpud_is_not_judged(world: World, init: subprocess.Popen[bytes]) -> None:
    grant = bound(world, init)
    path = Path(world.store.folder, f"{grant.nonce}.json")
    body = json.loads(path.read_bytes())["body"]
    del body["program"]
    path.write_bytes(record_file.encode("grant", body))
    start(init)
    world.grants.remove(grant)
    [after] = world.store.load().grants
    world.grants.add(after)
    assert after.program is None
    assert Looks(world).look(3) == []


RUNS, PAUSED_RUNTIME = (1, 2), (1, 1)
STEPS = st.lists(
    st.sampled_from(["start", "main", "exec", "look", "silent", "answers", "mgpud", "both"]), max_size=40
)


def _grant() -> Grant:
    return Grant(
        tenant=1,
        nonce="n",
        container_id="c",
        rootfs="/",
        identity=Identity(container="c"),
        qos="online",
        policy=None,
        advisory=False,
        cards=(),
        edits={},
        state="bound",
        pid=1,
        program=PAUSED_RUNTIME,
    )


@given(steps=STEPS)
def test_only_who_has_begun_without_a_listener_is_ended(steps: list[str]) -> None:
    """held: the holder has the listener; sent: its runtime has sent it, which it does before it starts."""
    held = begun = sent = False
    answers = True
    since_begun_or_restart = (
        0  # looks with an answering holder, while it had begun and nobody had its listener
    )
    grants = Grants()
    grants.add(_grant())
    killed: list[Grant] = []

    async def holder() -> bool:
        return answers

    def made() -> LostListeners:
        return LostListeners(grants, holder, killed.append, end=True)

    def restarted() -> LostListeners:
        grants.remove(next(iter(grants)))
        again = _grant()
        again.listens = held
        grants.add(again)
        return made()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_id, "program", lambda pid: RUNS if begun else PAUSED_RUNTIME)
        looks = made()
        for step in steps:
            [grant] = grants
            if step == "main" and not sent:
                held = sent = grant.listens = True
            elif step == "start" and sent:
                begun = True
            elif step in ("silent", "answers"):
                answers = step == "answers"
            elif step == "both":
                held, since_begun_or_restart = False, 0
                looks = restarted()
            elif step == "mgpud":
                since_begun_or_restart = 0
                looks = restarted()
            elif step == "look":
                before = len(killed)
                asyncio.run(looks.look())
                lost = begun and not held
                assert len(killed) == before or lost, "a container was ended that has its listener"
                if len(killed) > before:
                    assert since_begun_or_restart >= 1
                since_begun_or_restart = since_begun_or_restart + 1 if lost and answers else 0
                if since_begun_or_restart >= 2:
                    assert grant.lost_listener, "it was not found"
