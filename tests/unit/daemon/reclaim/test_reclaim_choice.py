"""The choice of containers to evict and to restore, in virtual time."""

from collections.abc import Callable
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from native_sched.daemon.reclaim.choose import HOLD_MOST, Card, Restorations, Tenant, returning, victim

MS, S, MIB = 1_000_000, 1_000_000_000, 1 << 20
HOLD = 100 * MS


def tenant(number: int, size: int, since_ns: int = 0, card: int = 0) -> Tenant:
    return Tenant(tenant=number, bytes={card: size}, since_ns=since_ns)


def card(demanded: int = 0, free: int = 0) -> Card:
    return Card(left_bytes=free, free_bytes=free, demanded_bytes=demanded)


def test_without_a_demand_nothing_is_evicted() -> None:
    assert victim({0: card(free=0)}, [tenant(1, 100)]) is None


def test_smallest_that_is_enough_is_evicted() -> None:
    chosen = victim({0: card(demanded=60, free=10)}, [tenant(1, 100), tenant(2, 50), tenant(3, 49)])
    assert chosen is not None
    assert chosen.tenant == 2


def test_where_none_is_enough_the_largest_is_evicted_first() -> None:
    chosen = victim({0: card(demanded=200)}, [tenant(1, 10), tenant(2, 90), tenant(3, 40)])
    assert chosen is not None
    assert chosen.tenant == 2


def test_of_equal_ones_the_one_that_has_run_for_longest_is_evicted() -> None:
    chosen = victim({0: card(demanded=10)}, [tenant(1, 10, since_ns=5), tenant(2, 10, since_ns=3)])
    assert chosen is not None
    assert chosen.tenant == 2


def test_free_memory_beyond_the_drivers_part_evicts_no_container() -> None:
    free = Card(left_bytes=100, free_bytes=100, demanded_bytes=90, unreported_bytes=11)
    assert victim({0: free}, [tenant(1, 50)]) is not None
    free = Card(left_bytes=100, free_bytes=100, demanded_bytes=90, unreported_bytes=10)
    assert victim({0: free}, [tenant(1, 50)]) is None


def test_container_on_another_card_is_left_alone() -> None:
    assert victim({0: card(demanded=10), 1: card()}, [tenant(1, 100, card=1)]) is None


def test_oldest_is_restored_first_even_if_a_younger_would_fit() -> None:
    restorations = Restorations(HOLD)
    waiting = [tenant(1, 80, since_ns=1), tenant(2, 10, since_ns=2)]
    assert restorations.next(0, {0: card(free=50)}, waiting) == (None, None)
    assert restorations.next(10 * S, {0: card(free=50)}, waiting) == (None, None)
    assert restorations.next(11 * S, {0: card(free=80)}, waiting) == (None, 11 * S + HOLD)
    chosen, _ = restorations.next(11 * S + HOLD, {0: card(free=80)}, waiting)
    assert chosen is not None
    assert chosen.tenant == 1


def test_room_that_goes_away_begins_the_hold_anew() -> None:
    restorations, waiting = Restorations(HOLD), [tenant(1, 80)]
    restorations.next(0, {0: card(free=80)}, waiting)
    restorations.next(HOLD // 2, {0: card(free=79)}, waiting)
    assert restorations.next(HOLD, {0: card(free=80)}, waiting) == (None, 2 * HOLD)


def test_nothing_is_restored_while_online_waits() -> None:
    restorations, waiting = Restorations(0), [tenant(1, 10)]
    assert restorations.next(S, {0: card(demanded=1, free=1000)}, waiting) == (None, None)


def test_evicted_one_says_when_it_comes_back_or_what_it_waits_for() -> None:
    restorations = Restorations(HOLD)
    waiting = [tenant(1, 80 * MIB, since_ns=1), tenant(2, 10 * MIB, since_ns=2)]
    restorations.next(0, {0: card(free=50 * MIB)}, waiting)
    assert restorations.back_ns == {}
    assert restorations.waits == {
        1: "GPU 0 has 50 of 80 MiB for it; 0.1 s after there is room for it",
        2: "one that was evicted earlier comes first; 0.1 s after there is room for it",
    }
    restorations.next(S, {0: card(free=80 * MIB)}, waiting)
    assert restorations.back_ns == {1: S + HOLD}
    assert set(restorations.waits) == {2}
    restorations.next(S, {0: card(demanded=1, free=80 * MIB)}, waiting)
    assert restorations.waits[1].startswith("online work waits for memory of GPU 0")


def moves(
    wants: Callable[[int], int], until_ns: int, hold_ns: int = HOLD, step_ns: int = 10 * MS
) -> list[int]:
    """When one container of 60 was evicted from a card of 100 beside online that wants so much at a time."""
    restorations, evicted_at = Restorations(hold_ns), []
    one, held = tenant(1, 60), True
    for now in range(step_ns, until_ns, step_ns):
        want = wants(now)
        free = 100 - (60 if held else 0)
        if held and want > free:
            assert victim({0: card(demanded=want, free=free)}, [one]) is one
            restorations.evicted(one, now)
            one, held = tenant(1, 60, since_ns=now), False
            evicted_at.append(now)
        elif not held:
            chosen, _ = restorations.next(now, {0: card(free=100 - want)}, [one])
            if chosen is not None:
                one, held = tenant(1, 60, since_ns=now), True
    return evicted_at


@settings(max_examples=60, deadline=None)
@given(st.integers(20, 3000), st.integers(1, 99))
def test_online_that_comes_and_goes_evicts_ever_more_seldom(period_ms: int, busy_percent: int) -> None:
    def wants(now: int) -> int:
        return 90 if now % (period_ms * MS) < period_ms * MS * busy_percent // 100 else 10

    evicted_at = moves(wants, 120 * S)
    gaps = [after - before for before, after in pairwise(evicted_at)]
    # Room stood for the hold before each restoration, and the hold doubles while evictions follow closely.
    hold = HOLD
    for gap in gaps:
        assert gap >= hold
        hold = min(2 * hold, HOLD_MOST * HOLD) if gap <= 8 * hold else HOLD


def test_container_that_ran_for_long_is_restored_as_soon_as_the_first_time() -> None:
    restorations = Restorations(HOLD)
    restorations.evicted(tenant(1, 10), S)
    restorations.evicted(tenant(1, 10, since_ns=2 * S), 2 * S + MS)
    assert restorations.hold_ns(1) == 2 * HOLD
    restorations.evicted(tenant(1, 10, since_ns=3 * S), 60 * S)
    assert restorations.hold_ns(1) == HOLD


def test_one_whose_memory_is_its_own_comes_back_as_soon_as_it_fits() -> None:
    cards = {0: card(free=50)}
    assert returning(cards, [tenant(1, 51), tenant(2, 50)]) == (tenant(2, 50), cards)


def test_for_online_that_cannot_come_back_what_it_lacks_is_evicted() -> None:
    cards = {0: Card(left_bytes=20, free_bytes=50), 1: card(free=10)}
    found, demanding = returning(cards, [tenant(1, 60)])
    assert found is None
    assert demanding[0].lacking_bytes == 40
    assert demanding[1] == cards[1]
    chosen = victim(demanding, [tenant(3, 30), tenant(2, 40), tenant(4, 50)])
    assert chosen == tenant(2, 40)
    assert Restorations(0).next(0, demanding, [tenant(5, 10)])[0] is None


def test_memory_that_is_kept_for_an_offline_one_evicts_nobody() -> None:
    cards = {0: Card(left_bytes=0, free_bytes=50)}
    kept = Tenant(tenant=1, bytes={0: 50}, kept=True)
    assert returning(cards, [kept])[0] == kept
    larger = Tenant(tenant=1, bytes={0: 51}, kept=True)
    assert returning(cards, [larger]) == (None, cards)
