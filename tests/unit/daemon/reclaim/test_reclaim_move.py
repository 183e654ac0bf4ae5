"""One container's way off its cards and back, with a driver that refuses, or an mgpu-checkpoint that ends, at
any step: all of its processes come to one place, and its grant says which.
"""

import asyncio
import time
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from native_sched.daemon.engine import Engine
from native_sched.daemon.grants import memory_kind
from native_sched.daemon.grants.grants import Grant, Reclaim, ReclaimState
from native_sched.daemon.node import process_id
from native_sched.daemon.node.config import NodeConfig
from native_sched.daemon.reclaim import host_memory, move
from native_sched.daemon.reclaim.checkpoint import Checkpoint, Failed, Gone, Patience
from native_sched.daemon.reclaim.move import Lost, Mover, NotMoved
from native_sched.daemon.reclaim.transitions import AFTER_CRASH, TRANSITIONS
from tests.support.places import REPOSITORY
from tests.unit.arbiter_support import World

MIB = 1 << 20
STEPS = {
    "lock": ("running", "locked"),
    "checkpoint": ("locked", "checkpointed"),
    "restore": ("checkpointed", "locked"),
    "unlock": ("locked", "running"),
}


class Driver:
    """Processes of a container, and what goes wrong: refuses it, ends before it, ends after it; by the number
    of the step. never_locks: its work goes on for ever.
    """

    def __init__(self, pids: int, wrong: dict[int, str] | None = None, never_locks: int = 0) -> None:
        self.states = {100 + number: "running" for number in range(pids)}
        self.unknown: set[int] = set()
        self.never_locks = never_locks
        self._wrong = dict(wrong or {})
        self._steps = 0
        self.asked: list[tuple[str, int]] = []
        self.pairs: dict[int, list[tuple[str, str]]] = {}

    @property
    def bytes_there(self) -> int:
        return 64 * MIB * sum(state != "checkpointed" for state in self.states.values())

    async def state(self, pid: int) -> str:
        if pid in self.unknown:
            raise Failed("CUDA_ERROR_NOT_INITIALIZED at state: initialization error")
        return self.states[pid]

    async def _step(self, verb: str, pid: int) -> None:
        self.asked.append((verb, pid))
        before, after = STEPS[verb]
        wrong = self._wrong.pop(self._steps, "")
        self._steps += 1
        if wrong == "refuses" or self.states[pid] != before:
            raise Failed(f"CUDA_ERROR_UNKNOWN at {verb}: unknown error")
        if wrong == "ends before":
            raise Gone("mgpu-checkpoint does not answer")
        self.states[pid] = after
        if wrong == "ends after":
            raise Gone("mgpu-checkpoint does not answer")

    async def lock(self, pid: int, timeout_ms: int) -> None:
        if pid == self.never_locks:
            self.asked.append(("lock", pid))
            await asyncio.sleep(timeout_ms / 1000)
            raise Failed("CUDA_ERROR_NOT_READY at lock: not ready")
        await self._step("lock", pid)

    async def checkpoint(self, pid: int, _patience: Patience) -> None:
        await self._step("checkpoint", pid)

    async def restore(self, pid: int, _patience: Patience, pairs: Iterable[tuple[str, str]] = ()) -> None:
        self.pairs[pid] = list(pairs)
        await self._step("restore", pid)

    async def unlock(self, pid: int) -> None:
        await self._step("unlock", pid)


class Container:
    """One that a mover moves."""

    def __init__(self, driver: Driver) -> None:
        self.world = World(NodeConfig(offline_overcommit=True))
        self.driver = driver
        self.grant: Grant = self.world.granted()
        self.drained: list[int] = []
        self.closed = False
        self.rooms: list[object] = []
        engine = SimpleNamespace(
            usage=lambda tenant, card: SimpleNamespace(used_bytes=driver.bytes_there),
            processes=lambda tenant: [SimpleNamespace(pid=pid) for pid in driver.states],
            drain=lambda tenant, until_ns: self.drained.append(until_ns),
            reclaim=self._reclaim,
        )
        self.mover = Mover(
            cast(Engine, engine), cast(Checkpoint, driver), lambda grant, then: self.saved.append(then.state)
        )
        self.saved: list[str] = []

    def _reclaim(self, tenant: int, *, closed: bool, room_bytes: object = None) -> None:
        self.closed = closed
        self.rooms.append(room_bytes)

    def does(self, move: Coroutine[Any, Any, None]) -> BaseException | None:
        """Its state, after what the mgpud, or the next one, does after an end in the middle."""

        async def run() -> None:
            try:
                await move
            except Gone:
                while True:
                    with suppress(Gone):
                        await self.mover.recover(self.grant)
                        return

        try:
            asyncio.run(run())
        except (NotMoved, Lost) as error:
            return error
        return None

    def evicts(self, drain_ms: int = 1000) -> BaseException | None:
        return self.does(self.mover.evict(self.grant, drain_ms=drain_ms, beside_online=True))

    def comes_from_a_checkpoint(self, patch: pytest.MonkeyPatch, *states: str) -> None:
        """Its processes, but for one without CUDA, are in these states; what it had was of another card."""
        self.driver.states = {100 + number: state for number, state in enumerate(states)}
        self.driver.unknown = {99}
        patch.setattr(
            process_id, "inside", lambda init: [(99, 1), *((pid, 1) for pid in self.driver.states)]
        )
        self.grant.reclaim = Reclaim(
            state=ReclaimState.EVICTING, saved=("GPU-old",), bytes={0: 64 * MIB * len(states)}
        )
        self.closed = True

    def recovers(self) -> BaseException | None:
        return self.does(self.mover.recover(self.grant))

    def restores(self) -> BaseException | None:
        return self.does(self.mover.restore(self.grant))

    def is_in_one_place(self) -> bool:
        place = {"running": "running", "evicted": "checkpointed"}[self.grant.reclaim.state]
        return set(self.driver.states.values()) == {place} and self.closed == (place != "running")


@pytest.fixture(autouse=True, scope="module")
def processes_live() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_id, "lives", lambda pid, start=0: True)
        patch.setattr(process_id, "start_time", lambda pid: 1)
        patch.setattr(process_id, "is_inside", lambda pid, init: True)
        patch.setattr(process_id, "is_ending", lambda pid: False)
        patch.setattr(host_memory, "room_bytes", lambda pid: 1 << 40)
        patch.setattr(move, "_LOOK_S", 0.001)
        patch.setattr(move, "_SEEN_TO_END_NS", 2_000_000)
        yield


wrongs = st.dictionaries(
    st.integers(0, 16), st.sampled_from(["refuses", "ends before", "ends after"]), max_size=4
)


@settings(max_examples=400, deadline=None)
@given(st.integers(1, 3), wrongs)
def test_whatever_goes_wrong_all_processes_come_to_one_place(pids: int, wrong: dict[int, str]) -> None:
    one = Container(Driver(pids, wrong))
    for _ in range(4):
        act = one.evicts if one.grant.reclaim.state == "running" else one.restores
        if isinstance(act(), Lost):
            break
        assert one.is_in_one_place(), (one.grant.reclaim.state, one.driver.states)
    assert one.drained == [] or one.drained[-1] == 0
    one.world.close()


def test_without_trouble_each_process_takes_each_step_once() -> None:
    one = Container(Driver(2))
    assert one.evicts() is None
    assert one.driver.asked == [("lock", 100), ("lock", 101), ("checkpoint", 100), ("checkpoint", 101)]
    assert one.restores() is None
    assert one.driver.asked[4:] == [("restore", 100), ("restore", 101), ("unlock", 100), ("unlock", 101)]
    assert one.saved == ["evicting", "evicted", "restoring", "running"]
    one.world.close()


def test_room_is_kept_until_all_is_moved() -> None:
    """CUDA takes and frees memory in turn on its way: online has none of it before the end."""
    one = Container(Driver(1))
    size = one.driver.bytes_there
    assert one.evicts() is None
    room = [{0: size}, {0: size + memory_kind.STAGING_BYTES}]
    assert one.rooms == [None, *room, None]
    assert one.restores() is None
    assert one.rooms[4:] == [*room, None, None]
    one.world.close()


def test_container_that_keeps_what_it_got_for_the_way_is_lost() -> None:
    one = Container(Driver(1))
    assert one.evicts() is None
    cap_bytes = one.grant.cards[0].memory_mib * MIB
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(one.mover, "bytes_on_cards", lambda grant: {0: cap_bytes + 1})
        assert str(one.restores()) == "it has kept 1 MiB beyond its cap"
    one.world.close()


def test_no_process_waits_locked_for_another_longer_than_the_drain() -> None:
    one = Container(Driver(2, never_locks=101))
    began_s = time.monotonic()
    assert str(one.evicts(drain_ms=100)) == "CUDA_ERROR_NOT_READY at lock: not ready"
    assert time.monotonic() - began_s < 5
    assert one.driver.asked == [("lock", 100), ("lock", 101), ("unlock", 100)]
    assert one.is_in_one_place()
    one.world.close()


def test_one_that_the_driver_does_not_know_is_left_alone() -> None:
    one = Container(Driver(2))
    one.driver.unknown = {101}
    assert str(one.evicts()) == "CUDA_ERROR_NOT_INITIALIZED at state: initialization error"
    assert (one.driver.asked, one.saved, one.drained, one.closed) == ([], [], [], False)
    one.world.close()


def test_container_whose_state_cannot_be_asked_stays_as_it_is_written_down() -> None:
    one = Container(Driver(2, {2: "ends after"}))
    with pytest.raises(Gone):
        asyncio.run(one.mover.evict(one.grant, drain_ms=1000, beside_online=True))
    one.driver.unknown = {101}
    with pytest.raises(NotMoved):
        asyncio.run(one.mover.recover(one.grant))
    assert one.grant.reclaim.state == "evicting"
    one.driver.unknown = set()
    asyncio.run(one.mover.recover(one.grant))
    assert one.is_in_one_place()
    one.world.close()


def test_without_room_in_host_memory_nothing_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Container(Driver(1))
    held = sum(one.mover.bytes_on_cards(one.grant).values())
    monkeypatch.setattr(host_memory, "room_bytes", lambda pid: held - 1)
    assert "of host memory left to it" in str(one.evicts())
    assert (one.driver.asked, one.saved) == ([], [])
    one.world.close()


def test_one_of_a_checkpoint_is_evicted_and_comes_back_to_another_card(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Container(Driver(0))
    one.comes_from_a_checkpoint(monkeypatch, "checkpointed", "checkpointed")
    assert one.recovers() is None
    assert one.is_in_one_place()
    assert (one.grant.reclaim.bytes, one.grant.reclaim.saved) == ({0: 128 * MIB}, ())
    assert one.restores() is None
    here = one.grant.cards[0].uuid
    assert one.driver.pairs == {100: [("GPU-old", here)], 101: [("GPU-old", here)]}
    assert one.saved == ["evicting", "evicted", "restoring", "running"]
    one.world.close()


def test_one_that_began_to_work_meanwhile_is_not_left_half_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Container(Driver(0))
    one.comes_from_a_checkpoint(monkeypatch, "checkpointed", "running")
    assert one.recovers() is None
    assert one.is_in_one_place()
    assert one.restores() is None
    assert one.driver.pairs == {100: [("GPU-old", one.grant.cards[0].uuid)], 101: []}
    one.world.close()


@pytest.mark.parametrize("states", [("running",), ()])
def test_one_that_is_not_evicted_gains_nothing_by_a_file_that_says_so(
    monkeypatch: pytest.MonkeyPatch, states: tuple[str, ...]
) -> None:
    one = Container(Driver(0))
    one.comes_from_a_checkpoint(monkeypatch, *states)
    assert one.recovers() is None
    assert one.grant.reclaim == Reclaim(since_ns=one.grant.reclaim.since_ns)
    assert (one.closed, one.driver.asked) == (False, [])
    one.world.close()


def test_memory_that_mgpu_did_not_know_of_may_be_all_of_its_cap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Container(Driver(0))
    one.comes_from_a_checkpoint(monkeypatch, "checkpointed")
    one.grant.reclaim.bytes = {}
    assert one.recovers() is None
    assert one.grant.reclaim.bytes == {card.index: card.memory_mib * MIB for card in one.grant.cards}
    one.world.close()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(["running", "checkpointed", "locked"]), min_size=1, max_size=3), wrongs)
def test_whatever_goes_wrong_processes_of_a_checkpoint_come_to_one_place(
    states: list[str], wrong: dict[int, str]
) -> None:
    one = Container(Driver(0, wrong))
    with pytest.MonkeyPatch.context() as patch:
        one.comes_from_a_checkpoint(patch, *states)
        if not isinstance(one.recovers(), Lost):
            assert one.is_in_one_place(), (one.grant.reclaim.state, one.driver.states)
    one.world.close()


@pytest.mark.parametrize("was", AFTER_CRASH)
@pytest.mark.parametrize("other", ["running", "locked"])
def test_next_mgpud_brings_both_processes_to_the_place_of_the_table(was: ReclaimState, other: str) -> None:
    one = Container(Driver(2))
    one.driver.states.update({100: "checkpointed", 101: other})
    one.grant.reclaim = Reclaim(state=was, processes=((100, 1), (101, 1)), bytes={0: 128 * MIB})
    assert one.recovers() is None
    assert one.is_in_one_place()
    assert one.grant.reclaim.state == AFTER_CRASH[was]
    one.world.close()


def test_state_that_the_table_does_not_reach_is_not_entered() -> None:
    one = Container(Driver(1))
    with pytest.raises(KeyError):
        one.mover._enter(one.grant, ReclaimState.RESTORING)
    assert (one.saved, one.grant.reclaim.state) == ([], ReclaimState.RUNNING)
    one.world.close()


def test_page_shows_the_transitions() -> None:
    rows = [
        f"| {came} | {to} | {way.guard} | {way.step or 'nothing'} |"
        for (came, to), way in TRANSITIONS.items()
        if way.guard
    ]
    assert "\n".join(rows) in (REPOSITORY / "docs" / "reclaim.md").read_text()
