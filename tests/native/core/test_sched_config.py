"""Entities and cards come, change and go; and what costs nothing."""

import errno

import pytest

from tests.native.scheduling import (
    FIXED,
    GUARANTEED,
    MS,
    NATIVE,
    NEVER,
    OFFLINE,
    ONLINE,
    WATCH_NONE,
    WATCH_SLOW,
    ByHand,
    config,
)


@pytest.mark.parametrize("class_id", [ONLINE, OFFLINE])
@pytest.mark.parametrize(("policy", "quota"), [(NATIVE, 1), (GUARANTEED, 1), (FIXED, 100)])
def test_alone_on_a_card_nothing_is_ever_decided_again(
    hand: ByHand, policy: int, quota: int, class_id: int
) -> None:
    hand.policy(0, policy)
    hand.add(1, class_id, quota=quota)
    assert hand.decide_all() == [(1, True)]
    for _ in range(10):
        hand.now += 60 * MS
        hand.seen(1)
        assert (hand.decide(), hand.wake_at, hand.watch()) == ([], NEVER, WATCH_NONE)
        hand.now += 60 * MS
        hand.done(1)
        assert (hand.decide(), hand.wake_at, hand.watch()) == ([], NEVER, WATCH_NONE)


def test_binding_quota_is_watched(hand: ByHand) -> None:
    hand.policy(0, FIXED)
    hand.add(1, ONLINE, quota=99)
    hand.decide_all()
    assert hand.watch() == WATCH_SLOW


def test_two_tenants_of_one_class_are_polled(hand: ByHand) -> None:
    hand.add(1, ONLINE)
    hand.add(2, ONLINE)
    hand.decide_all()
    assert (hand.watch(), hand.watch(card=1)) == (WATCH_SLOW, WATCH_NONE)


def test_bad_configurations_are_refused(hand: ByHand) -> None:
    hand.policy(0, GUARANTEED)
    assert hand.add(1, ONLINE, quota=60) == 0
    assert hand.add(1, ONLINE) == -errno.EEXIST
    assert hand.add(2, ONLINE, quota=41) == -errno.EDQUOT
    assert hand.add(2, OFFLINE, quota=41) == 0
    assert hand.add(3, ONLINE, cards=0) == -errno.EINVAL
    assert hand.add(3, 2) == -errno.EINVAL
    assert hand.add(3, ONLINE, quota=0) == -errno.EINVAL
    assert hand.add(3, ONLINE, quota=101) == -errno.EINVAL
    assert hand.add(3, ONLINE, cards=0b11) == -errno.EINVAL, "cards of two policies"
    assert hand.add(3, ONLINE, cards=0b110, quota=0) == 0
    assert hand.add(4, ONLINE, cards=0b100, quota=101) == 0, "native heeds no quota"
    assert hand.policy(2, FIXED) == -errno.EDQUOT
    assert hand.remove(4) == 0
    assert hand.policy(32, FIXED) == -errno.EINVAL
    assert hand.policy(4, 3) == -errno.EINVAL
    assert hand.change(2, ONLINE, quota=41) == -errno.EDQUOT
    assert hand.change(1, ONLINE, quota=100) == 0
    assert hand.change(9, ONLINE) == -errno.ENOENT
    assert hand.seen(9) == -errno.ENOENT
    assert hand.seen(1, card=1) == -errno.EINVAL
    assert hand.seen(1, card=32) == -errno.EINVAL
    assert hand.done(9) == -errno.ENOENT
    assert hand.carried_out(9, True) == -errno.ENOENT
    assert hand.failed(9, True) == -errno.ENOENT
    assert hand.remove(9) == -errno.ENOENT
    assert hand.configure(config(offline_slice_ns=0)) == -errno.EINVAL
    assert hand.configure(config(period_ns=0)) == -errno.EINVAL


def test_room_for_1024(hand: ByHand) -> None:
    for round_number in range(2):
        for id in range(1024):
            assert hand.add(id + round_number, ONLINE, cards=1 << id % 32) == 0
        assert hand.add(5000, ONLINE) == -errno.ENOSPC
        hand.decide_all()
        for id in range(1024):
            assert hand.remove(id + round_number) == 0
    assert (hand.decide(), hand.wake_at) == ([], NEVER)


@pytest.mark.parametrize("state", ["unknown", "resuming", "running", "suspending", "suspended"])
@pytest.mark.parametrize("class_id", [ONLINE, OFFLINE])
def test_removal_in_every_state_frees_the_card(hand: ByHand, class_id: int, state: str) -> None:
    if state in ("resuming", "running"):
        hand.add(1, class_id)
        hand.seen(1)
        hand.decide()
        if state == "running":
            hand.carried_out(1, True)
    else:
        hand.add(3, class_id)
        hand.seen(3)
        hand.decide_all()
        hand.add(1, class_id)
        hand.seen(1)
        if state != "unknown":
            hand.decide()
        if state == "suspended":
            hand.decide_all()
        hand.remove(3)
    hand.add(2, class_id)
    hand.seen(2)
    orders = hand.decide()
    hand.remove(1)
    for id, run in orders:
        assert hand.carried_out(id, run) == (0 if id == 2 else -errno.ENOENT)
    hand.decide_all()
    assert hand.enabled() == {2}
    hand.remove(2)
    assert (hand.decide_all(), hand.wake_at) == ([], NEVER)


def test_new_quota_counts_at_once(hand: ByHand) -> None:
    hand.policy(0, FIXED)
    hand.add(1, ONLINE, quota=100)
    hand.seen(1)
    hand.decide_all()
    hand.now += 1000 * MS
    hand.change(1, ONLINE, quota=20)
    hand.decide_all()
    assert hand.wake_at - hand.now <= 25 * MS
    hand.now = hand.wake_at
    assert hand.decide() == [(1, False)]
    hand.change(1, ONLINE, quota=100)
    hand.carried_out(1, False)
    assert hand.decide() == [(1, True)]


def test_entity_follows_its_change_of_card(hand: ByHand) -> None:
    hand.add(1, OFFLINE)
    hand.add(2, OFFLINE, cards=0b10)
    hand.seen(1)
    hand.seen(2, card=1)
    hand.decide_all()
    assert hand.enabled() == {1, 2}
    hand.change(1, OFFLINE, cards=0b10)
    assert not hand.state(1).busy
    assert hand.decide_all() == [(1, False)]
    hand.seen(1, card=1)
    hand.now += 1000 * MS
    hand.decide_all()
    assert hand.enabled() == {1}
