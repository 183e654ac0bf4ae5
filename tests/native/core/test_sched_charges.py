"""What an entity is charged when the loop learns late, or in another order than things happened."""

from tests.native.scheduling import FIXED, GUARANTEED, MS, OFFLINE, ONLINE, ByHand, config


def test_from_the_resume_to_the_suspend(hand: ByHand) -> None:
    hand.add(1, OFFLINE)
    hand.add(2, ONLINE)
    hand.decide_all()
    hand.seen(1)
    assert hand.decide() == [(1, True)]
    hand.now += 1 * MS
    hand.carried_out(1, True)
    hand.now += 5 * MS
    hand.seen(2)
    assert hand.decide() == [(1, False)]
    hand.now += 2 * MS
    hand.carried_out(1, False)
    hand.now += 7 * MS
    hand.decide()
    assert hand.state(1).run_ns == 8 * MS
    assert hand.state(1).suspended_ns == 7 * MS
    assert hand.state(1).preemptions == 1


def test_work_that_was_seen_late_and_ended_earlier(hand: ByHand) -> None:
    hand.policy(0, FIXED)
    hand.add(1, ONLINE, quota=50)
    hand.decide_all()
    hand.now += 200 * MS
    hand.configure(config())
    hand.decide()
    full = hand.state(1).budget_ns
    hand.now += 3 * MS
    hand.seen(1, since=hand.now - 2 * MS)
    hand.decide()
    hand.now += 4 * MS
    hand.decide()
    assert hand.state(1).run_ns == 6 * MS
    hand.done(1, since=hand.now - 3 * MS)
    assert hand.state(1).run_ns == 3 * MS
    hand.decide()
    assert 0 <= full - hand.state(1).budget_ns < 3 * MS


def test_charges_do_not_overlap(hand: ByHand) -> None:
    hand.add(1, ONLINE)
    hand.decide_all()
    begin = hand.now
    hand.seen(1)
    hand.now = begin + 9 * MS
    hand.done(1)
    hand.seen(1, since=begin + 2 * MS)
    hand.now = begin + 10 * MS
    hand.decide()
    assert hand.state(1).run_ns == 10 * MS


def test_work_of_a_gang_ends_with_the_last_of_its_cards(hand: ByHand) -> None:
    hand.add(1, ONLINE, cards=0b11)
    hand.decide_all()
    begin = hand.now
    hand.seen(1, card=0)
    hand.seen(1, card=1)
    hand.now = begin + 9 * MS
    hand.done(1, card=1, since=begin + 8 * MS)
    hand.done(1, card=0, since=begin + 3 * MS)
    assert hand.state(1).run_ns == 8 * MS


def test_work_of_a_gang_begins_with_the_first_of_its_cards(hand: ByHand) -> None:
    hand.add(1, ONLINE, cards=0b11)
    hand.decide_all()
    begin = hand.now
    hand.now += 10 * MS
    hand.seen(1, card=1, since=begin + 5 * MS)
    hand.seen(1, card=0, since=begin + 3 * MS)
    hand.decide()
    assert hand.state(1).run_ns == 7 * MS
    hand.done(1, card=0, since=begin + 10 * MS)
    hand.done(1, card=1, since=begin + 10 * MS)
    # One that had ended by then is no second charge.
    hand.now += 10 * MS
    hand.seen(1, card=1, since=begin + 9 * MS)
    hand.seen(1, card=0, since=begin + 4 * MS)
    hand.decide()
    assert hand.state(1).run_ns == 17 * MS


def test_unseen_run_before_an_idle_suspend_is_charged(hand: ByHand) -> None:
    hand.add(1, OFFLINE)
    hand.add(2, ONLINE)
    hand.decide_all()
    hand.seen(1)
    hand.decide_all()
    hand.done(1)
    hand.decide()
    hand.now = hand.wake_at
    assert hand.decide_all() == [(1, False)]
    hand.now += 1 * MS
    hand.seen(1, since=hand.now - 3 * MS)
    assert hand.state(1).run_ns == 2 * MS


def test_resume_that_was_overtaken_counts_until_the_suspend(hand: ByHand) -> None:
    hand.add(1, OFFLINE)
    hand.add(2, ONLINE)
    hand.decide_all()
    hand.seen(1)
    assert hand.decide() == [(1, True)]
    hand.seen(2)
    assert hand.decide() == [(1, False)]
    hand.now += 4 * MS
    hand.done(1)
    hand.seen(1)
    hand.now += 3 * MS
    hand.carried_out(1, True)
    hand.carried_out(1, False)
    assert hand.state(1).run_ns == 7 * MS


def test_resume_that_failed_costs_nothing(hand: ByHand) -> None:
    hand.policy(0, FIXED)
    hand.add(1, OFFLINE, quota=20)
    hand.seen(1)
    before = hand.state(1).budget_ns
    assert hand.decide() == [(1, True)]
    hand.now += 5 * MS
    hand.decide()
    hand.failed(1, True)
    assert hand.state(1).run_ns == 0
    assert hand.state(1).budget_ns >= before


def test_unpolled_time_is_not_charged(hand: ByHand) -> None:
    """One that is alone and had work when the last look was made may be idle since."""
    hand.add(1, ONLINE)
    hand.decide_all()
    hand.seen(1)
    hand.decide_all()
    hand.now += 4 * MS
    hand.watched(False)
    hand.now += 1000 * MS
    hand.decide()
    assert hand.state(1).run_ns == 4 * MS == hand.run_ns(1)
    assert not hand.state(1).busy
    hand.carried_out(1, True)
    hand.now += 5 * MS
    hand.decide()
    assert hand.state(1).run_ns == 4 * MS
    hand.watched(True)
    hand.now += 3 * MS
    assert hand.run_ns(1) == 7 * MS
    assert hand.state(1).busy
    hand.done(1, since=hand.now - 1 * MS)
    assert hand.run_ns(1) == 6 * MS


def test_most_percent_is_the_binding_quota(hand: ByHand) -> None:
    hand.policy(0, FIXED)
    hand.add(1, ONLINE, quota=30)
    hand.add(2, OFFLINE, quota=100)
    assert [hand.most_percent(id) for id in (1, 2, 3)] == [30, 100, 100]
    hand.policy(0, GUARANTEED)
    assert hand.most_percent(1) == 100
