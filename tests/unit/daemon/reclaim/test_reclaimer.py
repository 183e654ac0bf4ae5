"""The reclaimer, by itself and by hand, over a driver that refuses, stays silent or loses its
mgpu-checkpoint: no container holds up another, and each request has an end.
"""

import asyncio
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from native_sched.daemon.control import report
from native_sched.daemon.engine_abi import Process
from native_sched.daemon.grants.grants import Grant, Reclaim, ReclaimState
from native_sched.daemon.node import process_id
from native_sched.daemon.reclaim import move
from native_sched.daemon.reclaim import reclaim as reclaiming
from native_sched.daemon.reclaim.checkpoint import Alone, Checkpoint, Gone, Patience
from oci_specs.refusal import Refusal
from tests.unit.reclaimer_support import FIRST_PID, HELD, WITHIN_S, Node, made


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    yield from made(monkeypatch)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    yield from made(monkeypatch, unevictable="end")


def test_helper_that_dies_once_is_tried_again_at_once(node: Node) -> None:
    one = node.container()
    node.driver.dies, node.engine.demands = 1, {0}
    node.runs(lambda: one.reclaim.state == "evicted")
    assert [verb for verb, _ in node.driver.steps] == ["lock", "lock", "checkpoint"]
    assert one.not_moved == ""


def test_moves_and_the_time_away_are_noted(node: Node) -> None:
    one, counts = node.container(), node.reclaimer.counts
    node.engine.demands = {0}
    node.runs(lambda: one.reclaim.state == "evicted" and not node.reclaimer._moves)
    assert (sum(counts.evicting.counts), sum(counts.away.counts)) == (1, 0)
    node.engine.demands.clear()
    node.runs(lambda: one.reclaim.state == "running" and not node.reclaimer._moves)
    assert (sum(counts.restoring.counts), sum(counts.away.counts)) == (1, 1)
    assert counts.away.sum_s > counts.restoring.sum_s > 0


def test_helper_that_dies_twice_leaves_the_container_alone_for_a_moment(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An online call may wait for it."""
    one, rests, rest = node.container(), list[float](), node.reclaimer._defer_retry

    def noted(grant: Grant, seconds: float) -> None:
        rests.append(seconds)
        rest(grant, seconds)

    monkeypatch.setattr(node.reclaimer, "_defer_retry", noted)
    node.driver.dies, node.engine.demands = 6, {0}
    node.runs(lambda: one.reclaim.state == "evicted")
    assert rests == [0.03, 0.06, 0.12]
    assert node.reclaimer._moments_s == {}


def test_container_is_not_ended_for_a_helper_that_dies_now_and_then(short: Node) -> None:
    one = short.container()
    short.driver.dies, short.engine.demands = 6, {0}
    short.runs(lambda: one.reclaim.state == "evicted")
    assert short.killed == []
    other = short.container(1)
    short.driver.dies, short.engine.demands = 1000, {1}
    short.runs(lambda: short.killed == [other])


def test_move_that_cannot_be_written_down_is_tried_again_in_a_moment(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that was full for an instant held online up for ten seconds."""
    one = node.container()
    save, full = node.world.store.save, [True]

    def saved(grant: Grant, **changed: Any) -> None:
        if full:
            raise Refusal("grant-not-recorded", "No space left on device", "make room")
        save(grant, **changed)

    monkeypatch.setattr(node.world.store, "save", saved)
    node.engine.demands = {0}
    node.runs(lambda: bool(one.not_moved))
    full.clear()
    left_ns = node.reclaimer._retry_ns[one.tenant] - time.monotonic_ns()
    assert left_ns < 10**9
    node.runs(lambda: one.reclaim.state == "evicted")


def test_online_does_not_wait_for_a_restoration_whose_helpers_died(node: Node) -> None:
    """Nobody could say where it is, so it was to be left alone for ten seconds, with its room."""
    grant = node.container(state="evicted")
    node.engine.demands.add(0)
    node.runs(lambda: True)
    grant.reclaim.state = ReclaimState.RESTORING
    node.reclaimer._defer_retry(grant)
    node.runs(lambda: grant.reclaim.state == ReclaimState.EVICTED)
    assert node.driver.steps == [], "nothing was moved, so nothing is moved back"


def test_restoration_whose_helper_died_gives_way_to_online(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has moved nothing. Once more at once, and online would wait for all of it, and for its eviction."""
    one = node.container(state="evicted")

    async def restore(pid: int, _patience: Patience, _pairs: object = ()) -> None:
        if not node.driver.steps:
            node.engine.demands, node.driver.dies = {0}, 1
        await node.driver.step("restore", pid)

    monkeypatch.setattr(node.driver, "restore", restore)
    node.runs(lambda: bool(one.not_moved))
    node.runs(lambda: True)
    assert (one.reclaim.state, node.driver.steps) == ("evicted", [("restore", node.pid(one))])
    node.runs(lambda: one.reclaim.state == "running", node.engine.demands.clear)


def test_what_an_evicted_container_waits_for_is_told(node: Node) -> None:
    def told(grant: Grant) -> str:
        return str(report.container(node.world.served, grant, ())["reclaim"]["comes_back"])

    grant, by_hand = node.container(state="evicted"), node.container(state="evicted", by_hand=True)
    node.engine.demands.add(0)
    node.runs(lambda: "online work waits for memory of GPU 0" in told(grant))
    assert told(by_hand) == "when it is resumed by hand"
    node.engine.demands.clear()
    node.runs(lambda: grant.reclaim.state == "running")
    assert told(grant) == "None"


def test_refusal_of_the_driver_is_not_tried_again(node: Node) -> None:
    one = node.container()
    node.driver.refuses, node.engine.demands = "lock", {0}
    node.runs(lambda: bool(one.not_moved))
    node.runs(lambda: True)
    assert node.driver.steps == [("lock", node.pid(one))]


def test_restoration_that_waits_for_online_holds_up_no_other_card(node: Node) -> None:
    waits, other = node.container(0, "evicted"), node.container(1, "evicted")
    runs = node.container(0)
    node.driver.waits = {node.pid(waits)}
    node.runs(lambda: other.reclaim.state == "running" and waits.reclaim.state == "restoring")

    def demand() -> None:
        node.engine.demands = {0}

    node.runs(lambda: runs.reclaim.state == "evicted", demand)


def test_by_hand_it_is_resumed_beside_a_restoration_that_waits(node: Node) -> None:
    waits, other = node.container(0, "evicted"), node.container(0, "evicted", by_hand=True)
    node.driver.waits = {node.pid(waits)}
    node.runs(
        lambda: waits.reclaim.state == "restoring" and other.reclaim.state == "running",
        lambda: node.reclaimer.ask_resume(other),
    )


def test_one_whose_memory_is_its_own_returns_beside_a_restoration_that_waits(node: Node) -> None:
    waits, own = node.container(0, "evicted"), node.container(0, "evicted", by_hand=True)
    own.reclaimable = False
    node.driver.waits = {node.pid(waits)}
    node.runs(
        lambda: waits.reclaim.state == "restoring" and own.reclaim.state == "running",
        lambda: node.reclaimer.ask_resume(own),
    )


def test_online_call_lets_what_it_waits_for_end_beside_online(node: Node) -> None:
    waits = node.container(0, "evicted")
    node.driver.waits = {node.pid(waits)}

    def demand() -> None:
        node.engine.demands = {0}

    node.runs(lambda: (waits.tenant, True) in node.engine.drained, demand)


def test_one_between_two_places_does_not_keep_the_next_mgpud_from_evicting(node: Node) -> None:
    between, runs = node.container(0, "restoring"), node.container(1)
    node.engine.online_busy, node.engine.demands = {between.tenant}, {1}
    node.runs(lambda: runs.reclaim.state == "evicted")
    assert (between.reclaim.state, node.killed) == ("restoring", [])


def test_one_that_the_driver_leaves_between_two_places_is_ended(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(move, "_COPY_LEAST_S", 0.0)
    monkeypatch.setattr(move, "_SLOWEST_BYTES_PER_S", 1000 * HELD)
    between = node.container(0, "restoring")
    node.runs(lambda: node.killed == [between])


def test_container_that_ends_before_its_eviction_begins_holds_up_no_other(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = node.container(), node.container()
    node.engine.demands = {0}

    def ends(tenant: int) -> list[Process]:
        if tenant == first.tenant:
            node.world.grants.remove(first)
            raise ProcessLookupError
        return [Process(pid=FIRST_PID + tenant)]

    monkeypatch.setattr(node.engine, "processes", ends)
    node.runs(lambda: second.reclaim.state == "evicted")


def test_ended_container_is_not_written_down_again(node: Node) -> None:
    one = node.container()
    node.world.grants.remove(one)
    node.world.store.remove(one)
    node.reclaimer._save(one, Reclaim())
    assert node.written(one) is None


def test_frozen_container_is_said_to_be_and_not_waited_for(node: Node) -> None:
    runs, evicted = node.container(), node.container(0, "evicted", by_hand=True)
    runs.paused = evicted.paused = True

    def ask() -> None:
        node.reclaimer.ask_evict(runs)
        node.reclaimer.ask_resume(evicted)

    node.runs(lambda: runs.asked is None and evicted.asked is None, ask)
    assert (runs.not_moved, evicted.not_moved) == ("it is frozen", "it is frozen")
    assert (evicted.reclaim.state, evicted.reclaim.by_hand) == ("evicted", True)


def test_evicted_container_that_is_evicted_by_hand_stays_so_for_the_next_mgpud(node: Node) -> None:
    one = node.container(0, "evicted")
    node.engine.demands = {0}
    node.runs(lambda: one.asked is None, lambda: node.reclaimer.ask_evict(one))
    written = node.written(one)
    assert written is not None
    assert (written.reclaim.state, written.reclaim.by_hand) == ("evicted", True)


def test_last_word_of_the_operator_counts(node: Node) -> None:
    one = node.container(0, "evicted", by_hand=True)

    def ask() -> None:
        node.reclaimer.ask_resume(one)
        node.reclaimer.ask_evict(one)

    node.runs(lambda: one.asked is None, ask)
    assert (one.reclaim.state, one.reclaim.by_hand) == ("evicted", True)


def test_one_whose_evicted_processes_have_ended_gets_memory_again_without_room(node: Node) -> None:
    one = node.container(0, "evicted")
    node.engine.demands = {0}
    node.driver.alive.clear()
    node.runs(lambda: one.reclaim.state == "running")
    assert one.reclaim.bytes == {}


def test_success_ends_what_was_said_of_a_failure(node: Node) -> None:
    one = node.container(0, "evicted")
    one.not_moved = "no room"
    node.runs(lambda: one.reclaim.state == "running" and not one.not_moved)


def test_one_that_has_nothing_left_on_its_card_is_not_ended_as_unevictable(
    short: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = short.container(), short.container(1)
    short.engine.demands = {0, 1}
    short.driver.refuses = "lock"
    lives = short.driver.lock

    async def lock(pid: int, timeout_ms: int) -> None:
        if pid == short.pid(one):
            short.driver.states[pid] = "gone"
            short.driver.alive.discard(pid)
        await lives(pid, timeout_ms)

    monkeypatch.setattr(short.driver, "lock", lock)
    short.runs(lambda: bool(one.not_moved and other.not_moved))
    assert short.killed == [other]


def test_time_that_does_not_count_is_not_up() -> None:
    counted: list[bool] = []

    def counts() -> bool:
        counted.append(len(counted) >= 2)
        return counted[-1]

    async def run() -> None:
        await Patience(0.1, counts).of(asyncio.sleep(60))

    with pytest.raises(TimeoutError):
        asyncio.run(run())
    assert counted == [False, False, True]


def test_silent_helper_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "mgpu-checkpoint"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setattr("oci_specs.paths.libexec", lambda name: str(program))

    async def run() -> None:
        alone = Alone(str(tmp_path / "lock"))
        silent = Checkpoint("nvidia", alone)
        await silent.start()
        process = silent._process
        assert process is not None
        with pytest.raises(Gone):
            await silent.restore(1, Patience(0.1))
        assert process.returncode is not None
        alone.close()

    asyncio.run(run())


def test_all_that_wait_for_the_helper_before_go_on_together(tmp_path: Path) -> None:
    """A container that is recovered and the helper that is kept ready: neither waits for the other's lock."""

    async def run() -> None:
        before, alone = Alone(str(tmp_path / "lock")), Alone(str(tmp_path / "lock"))
        await before.lock()
        waiting = [asyncio.create_task(alone.lock()) for _ in range(2)]
        await asyncio.sleep(0.1)
        assert not any(each.done() for each in waiting)
        before.close()
        first, second = await asyncio.wait_for(asyncio.gather(*waiting), timeout=60)
        assert first == second
        alone.close()

    asyncio.run(run())


def test_helper_that_is_not_installed_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """mgpud serves without it."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.delenv("MGPU_PREFIX", raising=False)

    async def run() -> None:
        alone = Alone(str(tmp_path / "lock"))
        for driver in ("sim", "nvidia"):
            missing = Checkpoint(driver, alone)
            with pytest.raises(FileNotFoundError):
                await missing.start()
            with pytest.raises(Gone):
                await missing.restore(1, Patience(10))
        alone.close()

    asyncio.run(run())


def test_fault_of_one_look_is_not_the_last(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    one, faults = node.container(), [True]
    look = node.engine.card_memory

    def broken(card: int) -> Any:
        if faults:
            faults.clear()
            raise TypeError("a fault")
        return look(card)

    monkeypatch.setattr(reclaiming, "_RETRY_S", 0.01)
    monkeypatch.setattr(node.engine, "card_memory", broken)
    node.engine.demands = {0}
    node.runs(lambda: one.reclaim.state == "evicted")
    assert faults == []


def test_reclaimer_ends_although_something_happens_at_that_moment(node: Node) -> None:
    node.runs(lambda: True)
    assert node.task is not None
    node.reclaimer.wake()
    node.task.cancel()
    node.world.loop.run_until_complete(asyncio.wait([node.task], timeout=WITHIN_S))
    assert node.task.cancelled()


def test_one_of_a_checkpoint_is_asked_once_its_first_process_goes_on(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant, stopped = node.container(state="evicted"), [True]
    monkeypatch.setattr(process_id, "is_stopped", lambda pid: bool(stopped))
    monkeypatch.setattr(process_id, "inside", lambda init: [(node.pid(grant), 1)])
    grant.reclaimable = False
    grant.reclaim = Reclaim(state=ReclaimState.EVICTING, saved=("GPU-old",), bytes={0: HELD})
    node.runs(lambda: True)
    assert (grant.reclaim.state, node.driver.steps) == ("evicting", [])
    node.runs(lambda: grant.reclaim.state == "running", stopped.clear)
    assert node.driver.steps == [("restore", node.pid(grant)), ("unlock", node.pid(grant))]


def test_one_whose_memory_is_its_own_is_resumed_when_it_has_room(node: Node) -> None:
    grant = node.container(state="evicted", by_hand=True)
    grant.reclaimable = False
    node.engine.demands = {0}
    node.runs(lambda: True, lambda: node.reclaimer.ask_resume(grant))
    assert (grant.reclaim.state, grant.asked is None, node.driver.steps) == ("evicted", False, [])
    node.runs(lambda: grant.reclaim.state == "running", node.engine.demands.clear)
    assert grant.asked is None
