"""Online over offline: at once, absolutely, until exactly the end of the hold."""

import ctypes

import pytest

from tests.native.scheduling import (
    FIXED,
    MS,
    NEVER,
    OFFLINE,
    ONLINE,
    US,
    WATCH_FAST,
    WATCH_NONE,
    WATCH_SLOW,
    WHY_HOLD,
    WHY_IDLE,
    WHY_PREEMPTED,
    ByHand,
    config,
)

ON, OFF = 1, 2


def colocated(hand: ByHand) -> None:
    """Busy offline runs beside idle online."""
    assert hand.add(ON, ONLINE) == 0
    assert hand.add(OFF, OFFLINE) == 0
    assert hand.seen(OFF) == 0
    hand.decide_all()
    assert hand.enabled() == {ON, OFF}
    assert hand.watch() == WATCH_FAST


def test_decision_after_online_work_suspends_offline(hand: ByHand) -> None:
    colocated(hand)
    hand.now += 7
    hand.seen(ON)
    assert hand.decide() == [(OFF, False)]
    assert hand.decide() == []
    assert hand.state(OFF).why == WHY_PREEMPTED
    hand.carried_out(OFF, False)
    assert hand.decide_all() == []
    assert hand.wake_at == NEVER
    assert hand.watch() == WATCH_SLOW


def test_offline_returns_exactly_at_the_end_of_the_hold(hand: ByHand) -> None:
    colocated(hand)
    hand.seen(ON)
    hand.decide_all()
    hand.now += 30 * MS
    ended = hand.now - 300 * US
    hand.done(ON, since=ended)
    assert hand.decide() == []
    assert hand.wake_at == ended + 100 * MS
    assert hand.state(OFF).why == WHY_HOLD
    hand.now = ended + 100 * MS - 1
    assert hand.decide() == []
    hand.now += 1
    assert hand.decide() == [(OFF, True)]


def test_work_within_the_hold_restarts_the_hold(hand: ByHand) -> None:
    colocated(hand)
    hand.seen(ON)
    hand.decide_all()
    for _ in range(5):
        hand.done(ON)
        hand.now += 99 * MS
        assert hand.decide() == []
        hand.seen(ON)
        assert hand.decide() == []
        assert hand.wake_at == NEVER


def test_offline_returns_at_once_without_a_hold(sched: ctypes.CDLL) -> None:
    with ByHand(sched, config(hold_ns=0)) as hand:
        colocated(hand)
        hand.seen(ON)
        hand.decide_all()
        hand.done(ON)
        assert hand.decide() == [(OFF, True)]


def test_hold_can_be_changed_while_it_lasts(hand: ByHand) -> None:
    colocated(hand)
    hand.seen(ON)
    hand.decide_all()
    hand.done(ON)
    assert hand.decide_all() == []
    hand.now += 10 * MS
    assert hand.configure(config(hold_ns=10 * MS)) == 0
    assert hand.decide() == [(OFF, True)]


def test_suspend_overtakes_a_resume_under_way(hand: ByHand) -> None:
    hand.add(ON, ONLINE)
    hand.add(OFF, OFFLINE)
    hand.decide_all()
    hand.seen(OFF)
    assert hand.decide() == [(OFF, True)]
    hand.seen(ON)
    assert hand.decide() == [(OFF, False)]
    hand.carried_out(OFF, True)
    assert hand.decide() == []
    hand.carried_out(OFF, False)
    assert hand.decide_all() == []


def test_throttled_online_keeps_offline_off(hand: ByHand) -> None:
    hand.policy(0, FIXED)
    hand.add(ON, ONLINE, quota=10)
    hand.add(OFF, OFFLINE, quota=100)
    hand.seen(OFF)
    hand.seen(ON)
    hand.decide_all()
    for _ in range(20):
        hand.now = hand.wake_at
        hand.decide_all()
        assert OFF not in hand.enabled()
    assert hand.state(ON).run_ns < 110 * MS


def test_failed_suspend_is_retried_before_another_runs(hand: ByHand) -> None:
    hand.add(3, OFFLINE)
    hand.add(OFF, OFFLINE)
    hand.seen(OFF)
    hand.decide_all()
    hand.seen(3)
    hand.now += 1000 * MS
    assert hand.decide() == [(OFF, False)]
    pauses = []
    for _ in range(12):
        hand.failed(OFF, False)
        assert hand.decide() == []
        pauses.append(hand.wake_at - hand.now)
        hand.now = hand.wake_at
        assert hand.decide() == [(OFF, False)]
    assert pauses[:3] == [250 * US, 500 * US, 1 * MS]
    assert pauses[-1] == 64 * MS
    hand.carried_out(OFF, False)
    assert hand.decide() == [(3, True)]


def test_failed_resume_is_undone_before_another_runs(hand: ByHand) -> None:
    hand.add(3, OFFLINE)
    hand.add(OFF, OFFLINE)
    hand.seen(3)
    hand.seen(OFF)
    assert dict(hand.decide()) == {3: False}
    hand.carried_out(3, False)
    assert hand.decide() == [(OFF, True)]
    hand.failed(OFF, True)
    assert hand.decide() == [(OFF, False)]
    hand.carried_out(OFF, False)
    assert hand.decide() == [(3, True)]
    assert hand.state(OFF).run_ns == 0


@pytest.mark.parametrize("busy", [False, True])
def test_online_becomes_offline_and_back(hand: ByHand, busy: bool) -> None:
    colocated(hand)
    if busy:
        hand.seen(ON)
        hand.decide_all()
    assert hand.change(ON, OFFLINE) == 0
    hand.decide_all()
    if busy:
        assert hand.state(OFF).why == WHY_HOLD
        hand.now = hand.wake_at
        hand.decide_all()
    assert len(hand.enabled()) == 1
    hand.change(ON, ONLINE)
    hand.decide_all()
    assert hand.enabled() == ({ON} if busy else {ON, OFF})


def test_removed_busy_online_leaves_the_hold_behind(hand: ByHand) -> None:
    colocated(hand)
    hand.seen(ON)
    hand.decide_all()
    hand.remove(ON)
    assert hand.decide() == []
    assert hand.wake_at == hand.now + 100 * MS
    hand.now = hand.wake_at
    assert hand.decide() == [(OFF, True)]
    hand.carried_out(OFF, True)
    assert (hand.decide(), hand.wake_at, hand.watch()) == ([], NEVER, WATCH_NONE)


def test_idle_offline_keeps_a_shared_card_for_a_while(hand: ByHand) -> None:
    colocated(hand)
    hand.done(OFF)
    assert hand.decide() == []
    assert hand.wake_at == hand.now + 50 * MS
    hand.now = hand.wake_at
    assert hand.decide() == [(OFF, False)]
    assert hand.state(OFF).why == WHY_IDLE
    hand.carried_out(OFF, False)
    hand.seen(OFF)
    assert hand.decide() == [(OFF, True)]


def test_idle_offline_yields_to_busy_offline(hand: ByHand) -> None:
    colocated(hand)
    hand.add(3, OFFLINE)
    hand.decide_all()
    hand.done(OFF)
    hand.seen(3)
    assert hand.decide() == [(OFF, False)]
    hand.carried_out(OFF, False)
    assert hand.decide() == [(3, True)]


def test_gang_is_suspended_as_one_and_frees_its_other_card(hand: ByHand) -> None:
    gang, single = 5, 6
    hand.add(ON, ONLINE, cards=0b01)
    hand.add(gang, OFFLINE, cards=0b11)
    hand.add(single, OFFLINE, cards=0b10)
    hand.seen(gang, card=0)
    hand.decide_all()
    hand.seen(single, card=1)
    hand.decide_all()
    assert hand.enabled() == {ON, gang}
    hand.seen(ON)
    assert hand.decide() == [(gang, False)]
    hand.carried_out(gang, False)
    assert hand.decide() == [(single, True)]
    hand.carried_out(single, True)
    assert hand.decide_all() == []


def test_longer_list_than_there_is_room_for(hand: ByHand) -> None:
    for id in range(1, 10):
        hand.add(id, ONLINE, cards=1 << id)
    told = []
    while True:
        told += hand.decide(room=2)
        if not hand.more:
            break
    assert sorted(told) == [(id, True) for id in range(1, 10)]
