"""A frozen container: never enabled, in no other's way, and afterwards where it was."""

import ctypes
import errno

import pytest

from tests.native.scheduling import (
    ENDLESS,
    FIXED,
    MS,
    NATIVE,
    NEVER,
    OFFLINE,
    ONLINE,
    US,
    WATCH_FAST,
    WATCH_SLOW,
    WHY_HOLD,
    WHY_NONE,
    WHY_PAUSED,
    ByHand,
    Simulation,
    Span,
    config,
)

ON, OFF = 1, 2


@pytest.mark.parametrize("qos", [ONLINE, OFFLINE])
@pytest.mark.parametrize("busy", [False, True])
def test_paused_is_suspended_and_comes_back(hand: ByHand, qos: int, busy: bool) -> None:
    hand.add(1, qos)
    if busy:
        hand.seen(1)
    hand.decide_all()
    assert hand.pause(1) == 0
    assert hand.decide() == [(1, False)]
    hand.carried_out(1, False)
    assert (hand.decide(), hand.wake_at) == ([], NEVER)
    assert hand.state(1).why == WHY_PAUSED
    assert hand.state(1).preemptions == 0
    hand.now += 3600 * 1000 * MS
    assert hand.decide() == []
    assert hand.pause(1, False) == 0
    assert hand.decide() == [(1, True)]
    assert hand.state(1).why == WHY_NONE
    assert hand.state(1).busy is busy


def test_repeated_pause_changes_nothing(hand: ByHand) -> None:
    hand.add(ON, ONLINE)
    hand.add(OFF, OFFLINE)
    hand.seen(ON)
    hand.seen(OFF)
    hand.decide_all()
    for _ in range(2):
        hand.pause(ON)
        hand.decide_all()
    hand.now += 100 * MS
    hand.decide_all()
    assert hand.enabled() == {OFF}
    for _ in range(2):
        hand.pause(ON, False)
        hand.decide_all()
    assert hand.enabled() == {ON}
    hand.done(ON)
    hand.now += 100 * MS
    hand.decide_all()
    assert hand.enabled() == {ON, OFF}


def test_unknown_container_cannot_be_paused(hand: ByHand) -> None:
    assert hand.pause(7) == -errno.ENOENT


def test_paused_online_work_keeps_offline_off_for_the_hold_alone(hand: ByHand) -> None:
    hand.add(ON, ONLINE)
    hand.add(OFF, OFFLINE)
    hand.seen(ON)
    hand.seen(OFF)
    hand.decide_all()
    assert hand.enabled() == {ON}
    hand.now += 10 * MS
    hand.pause(ON)
    assert hand.decide_all() == [(ON, False)]
    assert hand.state(OFF).why == WHY_HOLD
    assert hand.wake_at == hand.now + 100 * MS
    hand.now = hand.wake_at
    assert hand.decide_all() == [(OFF, True)]
    assert hand.watch() == WATCH_SLOW
    assert hand.state(ON).busy
    # It has had work all the time: offline is off again with the first decision.
    hand.pause(ON, False)
    assert hand.decide() == [(OFF, False), (ON, True)]


def test_work_is_noticed_while_paused(hand: ByHand) -> None:
    hand.add(ON, ONLINE)
    hand.add(OFF, OFFLINE)
    hand.seen(OFF)
    hand.decide_all()
    hand.pause(ON)
    hand.decide_all()
    hand.seen(ON)
    assert hand.decide_all() == []
    assert hand.enabled() == {OFF}
    hand.done(ON)
    hand.pause(ON, False)
    assert hand.decide_all() == [(ON, True)]
    assert hand.enabled() == {ON, OFF}
    assert hand.watch() == WATCH_FAST


def test_paused_offline_gives_its_turn_to_the_next(hand: ByHand) -> None:
    hand.add(OFF, OFFLINE)
    hand.add(3, OFFLINE)
    hand.seen(OFF)
    hand.decide_all()
    hand.seen(3)
    hand.decide_all()
    assert hand.enabled() == {OFF}
    hand.now += 1 * MS
    hand.pause(OFF)
    assert hand.decide() == [(OFF, False)]
    hand.carried_out(OFF, False)
    assert hand.decide() == [(3, True)]
    hand.carried_out(3, True)
    assert (hand.decide(), hand.wake_at) == ([], NEVER)


def test_pause_overtakes_a_resume_under_way(hand: ByHand) -> None:
    hand.add(ON, ONLINE)
    assert hand.decide() == [(ON, True)]
    hand.pause(ON)
    assert hand.decide() == [(ON, False)]
    hand.carried_out(ON, True)
    hand.carried_out(ON, False)
    assert hand.decide_all() == []


def test_suspend_that_fails_is_tried_again_while_paused(hand: ByHand) -> None:
    hand.add(OFF, OFFLINE)
    hand.seen(OFF)
    hand.decide_all()
    hand.pause(OFF)
    assert hand.decide() == [(OFF, False)]
    hand.failed(OFF, False)
    assert hand.decide() == []
    assert hand.wake_at == hand.now + 250 * US
    hand.now = hand.wake_at
    assert hand.decide() == [(OFF, False)]


@pytest.mark.parametrize("qos", [ONLINE, OFFLINE])
def test_paused_container_can_be_changed_and_removed(hand: ByHand, qos: int) -> None:
    hand.add(1, qos)
    hand.add(9, OFFLINE)
    hand.seen(1)
    hand.seen(9)
    hand.decide_all()
    hand.pause(1)
    assert hand.change(1, OFFLINE if qos == ONLINE else ONLINE) == 0
    hand.decide_all()
    assert hand.change(1, qos) == 0
    hand.decide_all()
    hand.now += 100 * MS
    hand.decide_all()
    assert hand.enabled() == {9}
    assert hand.remove(1) == 0
    assert hand.decide_all() == []
    assert hand.wake_at == NEVER


def test_paused_container_needs_no_timer(hand: ByHand) -> None:
    hand.policy(0, FIXED)
    hand.add(1, ONLINE, quota=30)
    hand.seen(1)
    hand.decide_all()
    while not hand.state(1).throttled:
        hand.now = hand.wake_at
        hand.decide_all()
    hand.pause(1)
    assert hand.decide_all() == []
    assert hand.wake_at == NEVER


def test_paused_entity_saves_no_credit(sched: ctypes.CDLL) -> None:
    with Simulation(sched) as simulation:
        simulation.policy(NATIVE)
        for id in (1, 2):
            simulation.add(id, OFFLINE)
        simulation.pause(1)
        simulation.run(10_000 * MS)
        simulation.pause(1, False)
        simulation.measure()
        simulation.run(2_000 * MS)
        assert simulation.shares([1, 2]) == [pytest.approx(50, abs=2)] * 2


def test_quota_does_not_fill_up_meanwhile(sched: ctypes.CDLL) -> None:
    with Simulation(sched) as simulation:
        simulation.policy(FIXED)
        simulation.add(1, ONLINE, quota=30)
        simulation.run(1_000 * MS)
        simulation.pause(1)
        simulation.run(10_000 * MS)
        simulation.pause(1, False)
        simulation.measure()
        simulation.run(10_000 * MS)
        assert simulation.shares([1]) == [pytest.approx(30, abs=0.6)]


def test_burst_that_is_paused_ends_later_by_as_much(sched: ctypes.CDLL) -> None:
    at_once = {name: Span(0, 0) for name in ("order", "confirm", "detect")}
    with Simulation(sched, config(hold_ns=0), **at_once) as simulation:
        simulation.add(1, OFFLINE, work=40 * MS, pause=ENDLESS // 4)
        simulation.run(1_000 * MS)
        before = simulation.report(1).run_ns
        simulation.work(1, 40 * MS, 0)
        simulation.run(5 * MS)
        simulation.pause(1)
        simulation.run(500 * MS)
        assert 0 < simulation.report(1).run_ns - before <= 5 * MS
        simulation.pause(1, False)
        simulation.run(5 * MS)
        assert 5 * MS < simulation.report(1).run_ns - before <= 10 * MS
