"""A container that is evicted runs beside online work: it alone, and not for longer than it was given."""

import ctypes
import errno
from collections.abc import Iterator

import pytest

from tests.native.scheduling import (
    MS,
    OFFLINE,
    ONLINE,
    WHY_EVICTION,
    WHY_PAUSED,
    WHY_PREEMPTED,
    ByHand,
)

ON, OFF, OTHER = 1, 2, 3


@pytest.fixture
def hand(sched: ctypes.CDLL) -> Iterator[ByHand]:
    with ByHand(sched) as made:
        made.add(ON, ONLINE)
        made.add(OFF, OFFLINE)
        made.add(OTHER, OFFLINE)
        for each in (ON, OFF, OTHER):
            made.seen(each)
        made.decide_all()
        assert made.enabled() == {ON}
        yield made


def test_draining_tenant_runs_beside_online_until_its_instant(hand: ByHand) -> None:
    until = hand.now + 1000 * MS
    assert hand.drain(OFF, until) == 0
    assert hand.decide() == [(OFF, True)]
    hand.carried_out(OFF, True)
    assert hand.decide() == []
    assert hand.wake_at == until
    assert hand.enabled() == {ON, OFF}
    hand.now = until - 1
    assert hand.decide() == []
    hand.now = until
    assert hand.decide() == [(OFF, False)]
    assert hand.state(OFF).why == WHY_PREEMPTED


def test_no_other_offline_container_runs_meanwhile(hand: ByHand) -> None:
    hand.done(ON)
    hand.now += 100 * MS
    [(first, _)] = hand.decide_all()
    other = OTHER if first == OFF else OFF
    hand.drain(other, hand.now + 1000 * MS)
    assert hand.decide_all() == [(first, False), (other, True)]
    assert hand.state(first).why == WHY_EVICTION
    hand.now += 500 * MS
    assert hand.decide_all() == []
    hand.drain(other, 0)
    hand.now += 20 * MS
    assert {id for id, _ in hand.decide_all()} == {OFF, OTHER}


def test_one_without_work_is_enabled_too_since_it_is_copied(hand: ByHand) -> None:
    hand.done(OFF)
    hand.decide_all()
    hand.drain(OFF, hand.now + 1000 * MS)
    assert hand.decide_all() == [(OFF, True)]
    hand.drain(OFF, 0)
    assert hand.decide_all() == [(OFF, False)]


def test_frozen_one_does_not_run(hand: ByHand) -> None:
    hand.pause(OFF)
    hand.drain(OFF, hand.now + 1000 * MS)
    assert hand.decide_all() == []
    assert hand.state(OFF).why == WHY_PAUSED


def test_online_is_not_evicted(hand: ByHand) -> None:
    assert hand.drain(ON, hand.now + MS) == -errno.EINVAL
    assert hand.drain(99, 0) == -errno.ENOENT
    hand.drain(OFF, hand.now + 1000 * MS)
    hand.change(OFF, ONLINE)
    hand.change(OFF, OFFLINE)
    hand.decide_all()
    assert OFF not in hand.enabled()
