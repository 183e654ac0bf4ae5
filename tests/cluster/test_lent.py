"""A node's offer of memory that is lent, while online containers take and give back."""

from __future__ import annotations

import itertools
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cluster.node.lent import PAUSE_S, STEP_MIB, WINDOW_S, Lent
from cluster.resources.inventory import Inventory, Lending
from tests.cluster.scheduler_support import A100_MIB, inventory

ONE = inventory("n0", 1)


def using(online_mib: int, lent_mib: int = 0) -> Inventory:
    lending = Lending(online_mib=online_mib, kept_mib=0, lent_mib=lent_mib)
    return replace(ONE, cards=(replace(ONE.cards[0], lending=lending),))


def online_mib(of: Inventory) -> int:
    assert of.cards[0].lending is not None
    return of.cards[0].lending.online_mib


def test_node_that_lends_nothing_says_what_it_is_told() -> None:
    assert Lent().calm(ONE, 0) is not None
    assert Lent().calm(ONE, 0) == ONE


def test_offer_falls_at_once_and_rises_after_a_minute() -> None:
    lent = Lent()
    assert online_mib(lent.calm(using(1), 0)) == STEP_MIB
    assert online_mib(lent.calm(using(5000), PAUSE_S)) == 20 * STEP_MIB
    assert online_mib(lent.calm(using(0), 2 * PAUSE_S)) == 20 * STEP_MIB
    assert online_mib(lent.calm(using(0), PAUSE_S + WINDOW_S - 1)) == 20 * STEP_MIB
    assert online_mib(lent.calm(using(0), PAUSE_S + WINDOW_S)) == 0


def test_all_else_is_said_at_once() -> None:
    lent = Lent()
    lent.calm(using(0), 0)
    assert online_mib(lent.calm(using(5000), 1)) == 0, "not within the pause"
    lost = using(5000)
    lost = replace(lost, cards=(replace(lost.cards[0], healthy=False),))
    assert lent.calm(lost, 2).healthy == ()
    assert lent.calm(ONE, 3 + PAUSE_S) == ONE, "the operator has switched it off"


@given(st.lists(st.tuples(st.floats(0.1, 30), st.integers(0, A100_MIB)), min_size=1, max_size=60))
def test_writes_are_rare_and_never_say_less_than_the_last_minute_used(
    steps: list[tuple[float, int]],
) -> None:
    lent, now_s, writes = Lent(), 0.0, list[float]()
    used: list[tuple[float, int]] = []
    before: Inventory | None = None
    for wait_s, mib in steps:
        now_s += wait_s
        used.append((now_s, mib))
        said = lent.calm(using(mib), now_s)
        if said != before:
            writes.append(now_s)
            peak = max(each for at_s, each in used if at_s > now_s - WINDOW_S)
            assert peak <= online_mib(said) < peak + STEP_MIB
        before = said
    assert all(later - earlier >= PAUSE_S for earlier, later in itertools.pairwise(writes))
