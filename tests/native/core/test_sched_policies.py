"""What each policy promises, over every window and not only in the long run."""

import ctypes

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.native.scheduling import (
    FIXED,
    GUARANTEED,
    MS,
    NATIVE,
    NEVER,
    OFFLINE,
    ONLINE,
    US,
    ByHand,
    S,
    Simulation,
    config,
)

SLICE = {ONLINE: 5 * MS, OFFLINE: 10 * MS}
SWITCH = 500 * US


@pytest.mark.parametrize("class_id", [ONLINE, OFFLINE])
@pytest.mark.parametrize("quota", [1, 6, 30, 50, 90, 99])
def test_fixed_share_on_an_idle_card(sched: ctypes.CDLL, quota: int, class_id: int) -> None:
    with Simulation(sched) as cards:
        cards.policy(FIXED)
        cards.add(1, class_id, quota=quota, work=0)
        cards.run(1 * S)
        cards.work(1, work=NEVER)
        cards.measure()
        cards.run(10 * S)
        assert quota - 0.5 <= cards.shares([1])[0] <= quota + 0.5
        assert cards.report(1).excess_ns <= 0.005 * 10 * S


def test_fixed_share_of_all_is_never_throttled(sched: ctypes.CDLL) -> None:
    with Simulation(sched) as cards:
        cards.policy(FIXED)
        cards.add(1, ONLINE, quota=100)
        cards.run(10 * S)
        assert cards.decisions() == [(1 * S, 1, True)]


def test_fixed_share_of_offline_is_of_the_time_that_online_leaves(sched: ctypes.CDLL) -> None:
    with Simulation(sched) as cards:
        cards.policy(FIXED)
        cards.add(1, ONLINE, quota=50, work=40 * MS, pause=400 * MS)
        cards.add(2, OFFLINE, quota=30)
        cards.add(3, OFFLINE, quota=60)
        cards.run(1 * S)
        cards.measure()
        cards.run(60 * S)
        assert cards.report(2).open_ns < 48 * S
        assert cards.shares([2, 3]) == pytest.approx([30, 60], abs=0.5)


@given(
    quotas=st.lists(st.integers(1, 40), min_size=2, max_size=8).filter(lambda quotas: sum(quotas) <= 100),
    class_id=st.sampled_from([ONLINE, OFFLINE]),
    pauses=st.lists(st.integers(1, 60), min_size=8, max_size=8),
)
@settings(max_examples=60, deadline=None)
def test_guaranteed_share_in_every_window(
    sched: ctypes.CDLL, quotas: list[int], class_id: int, pauses: list[int]
) -> None:
    """One is always busy, the others come and go."""
    with Simulation(sched) as cards:
        cards.policy(GUARANTEED)
        for id, (quota, pause) in enumerate(zip(quotas, pauses, strict=False), 1):
            work = NEVER if id == 1 else (3 + pause % 20) * MS
            cards.add(id, class_id, quota=quota, work=work, pause=pause * MS)
        cards.run(200 * MS)
        cards.measure()
        cards.expect({1: quotas[0] / 100})
        cards.run(2 * S)
        turns = (len(quotas) + 1) * (SLICE[class_id] + SWITCH)
        assert cards.report(1).deficit_ns <= 2 * turns


@pytest.mark.parametrize("class_id", [ONLINE, OFFLINE])
@pytest.mark.parametrize("tenants", [2, 5, 16])
def test_native_share_in_every_window(sched: ctypes.CDLL, tenants: int, class_id: int) -> None:
    with Simulation(sched) as cards:
        cards.policy(NATIVE)
        for id in range(1, tenants + 1):
            cards.add(id, class_id)
        cards.run(300 * MS)
        cards.measure()
        cards.expect(dict.fromkeys(range(1, tenants + 1), 1 / tenants))
        cards.run(5 * S)
        turn = SLICE[class_id] + SWITCH
        for id in range(1, tenants + 1):
            assert cards.report(id).excess_ns <= 2 * turn
            assert cards.report(id).deficit_ns <= 2 * turn


def test_idle_time_is_shared_in_proportion(sched: ctypes.CDLL) -> None:
    with Simulation(sched) as cards:
        cards.policy(GUARANTEED)
        cards.add(1, OFFLINE, quota=20)
        cards.add(2, OFFLINE, quota=40)
        cards.add(3, OFFLINE, quota=40, work=0)
        cards.run(100 * MS)
        cards.measure()
        cards.run(10 * S)
        assert cards.shares([1, 2]) == pytest.approx([100 / 3, 200 / 3], abs=0.5)
        cards.work(3, work=NEVER)
        cards.run(100 * MS)
        cards.measure()
        cards.run(10 * S)
        assert cards.shares([1, 2, 3]) == pytest.approx([20, 40, 40], abs=0.5)


@pytest.mark.parametrize("policy", [NATIVE, FIXED, GUARANTEED])
def test_entities_beside_gangs_do_not_starve(sched: ctypes.CDLL, policy: int) -> None:
    """Each has its equal part of its most crowded card, and the one with a card's rest gets that too."""
    with Simulation(sched, starve_ns=400 * MS) as cards:
        cards.policy(policy, cards=range(3))
        cards.add(1, OFFLINE, cards=0b011, quota=25)
        cards.add(2, OFFLINE, cards=0b110, quota=25)
        for id, card in zip(range(3, 8), (0, 0, 1, 2, 2), strict=True):
            cards.add(id, OFFLINE, cards=1 << card, quota=25)
        cards.run(1 * S)
        cards.measure()
        cards.run(10 * S)
        if policy == FIXED:
            assert cards.shares(range(1, 8)) == pytest.approx([25] * 7, abs=0.5)
        else:
            assert min(cards.shares(range(1, 8))) > 30


def test_crowded_out_gang_claims_no_time_later(sched: ctypes.CDLL) -> None:
    with Simulation(sched) as cards:
        cards.policy(NATIVE, cards=range(2))
        cards.add(1, OFFLINE, cards=0b11)
        cards.add(2, OFFLINE, cards=0b01)
        for id in range(3, 9):
            cards.add(id, OFFLINE, cards=0b10)
        cards.run(10 * S)
        assert cards.shares([2])[0] > 80
        for id in range(3, 9):
            cards.remove(id)
        cards.run(200 * MS)
        cards.measure()
        cards.run(2 * S)
        assert cards.shares([1, 2]) == pytest.approx([50, 50], abs=1)


def test_online_that_wakes_up_and_has_had_less_runs_at_once(sched: ctypes.CDLL) -> None:
    with ByHand(sched) as hand:
        hand.add(1, ONLINE)
        hand.add(2, ONLINE)
        hand.decide_all()
        assert hand.enabled() == {1, 2}
        hand.seen(1)
        hand.decide_all()
        hand.now += 22 * MS
        hand.decide_all()
        hand.now += 1 * MS
        hand.seen(2)
        assert hand.decide() == [(1, False)]
        hand.carried_out(1, False)
        assert hand.decide() == []
        assert hand.wake_at == hand.now + 5 * MS
        hand.now += 2 * MS
        hand.done(2)
        assert hand.decide() == [(1, True)]
        hand.carried_out(1, True)
        hand.now += 500 * US
        hand.seen(2)
        assert hand.decide_all() == [(1, False)]


def test_saved_time_is_at_most_one_turn(sched: ctypes.CDLL) -> None:
    with ByHand(sched) as hand:
        hand.add(1, ONLINE)
        hand.add(2, ONLINE)
        hand.decide_all()
        hand.seen(1)
        hand.decide_all()
        hand.now += 10 * S
        hand.decide_all()
        hand.seen(2)
        hand.decide_all()
        assert hand.enabled() == {2}
        hand.now += 5 * MS
        hand.decide_all()
        assert hand.enabled() == {1}


def test_granularity_protects_a_turn_that_has_just_begun(sched: ctypes.CDLL) -> None:
    with ByHand(sched, config(wakeup_granularity_ns=4 * MS)) as hand:
        hand.add(1, ONLINE)
        hand.add(2, ONLINE)
        hand.decide_all()
        hand.seen(1)
        assert hand.decide_all() == []
        hand.now += 2 * MS
        hand.seen(2)
        assert hand.decide() == [(2, False)]


@pytest.mark.parametrize("class_id", [ONLINE, OFFLINE])
def test_turn_ends_early_with_the_work(sched: ctypes.CDLL, class_id: int) -> None:
    with ByHand(sched) as hand:
        hand.add(1, class_id)
        hand.add(2, class_id)
        hand.decide_all()
        hand.seen(1)
        hand.seen(2)
        hand.decide_all()
        first = 1 if not hand.state(2).enabled else 2
        hand.now += 1 * MS
        hand.done(first)
        assert (3 - first, True) in hand.decide_all()


@given(order=st.permutations(range(1, 8)), choices=st.lists(st.integers(0, 5), min_size=14, max_size=14))
@settings(max_examples=60, deadline=None)
def test_order_of_arrival_makes_no_difference(
    sched: ctypes.CDLL, order: list[int], choices: list[int]
) -> None:
    def decisions(ids: list[int]) -> list[tuple[int, int, bool]]:
        with Simulation(sched) as cards:
            cards.policy(GUARANTEED, cards=range(3))
            for id in ids:
                shape, work = choices[2 * id - 2 : 2 * id]
                mask = (0b001, 0b010, 0b100, 0b011, 0b110, 0b111)[shape]
                cards.add(id, id % 2, cards=mask, quota=10, work=(work + 1) * 2 * MS, pause=7 * MS)
            cards.run(300 * MS)
            return cards.decisions()

    assert decisions(list(order)) == decisions(sorted(order))


def test_decisions_visit_nothing_of_other_cards(sched: ctypes.CDLL) -> None:
    others = {9 + card: card for card in range(1, 32)}
    with ByHand(sched) as hand:
        for id in (1, 2):
            hand.add(id, OFFLINE)
            hand.seen(id)
        for id, card in others.items():
            hand.add(id, OFFLINE, cards=1 << card)
            hand.seen(id, card=card)
        hand.decide_all()

        def charged() -> list[int]:
            return [hand.state(id).vruntime_ns for id in others]

        before = charged()
        for _ in range(50):
            hand.now += 1 * US
            hand.done(1)
            hand.decide_all()
            hand.seen(1)
            hand.decide_all()
        assert charged() == before
        hand.done(10, card=others[10])
        hand.decide_all()
        assert charged() > before
