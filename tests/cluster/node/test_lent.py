"""A node's offer of memory that is lent, while online containers take and give back."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.node.lent import PAUSE_S, WINDOW_S, Lent
from cluster.resources.inventory import Inventory, Lending
from tests.cluster.scheduler_support import A100_MIB, inventory

ONE = inventory("n0", 1)
# Of a card of 80 GiB.
STEP_MIB = 1024


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
    assert online_mib(lent.calm(using(5000), PAUSE_S)) == 5 * STEP_MIB
    assert online_mib(lent.calm(using(0), 2 * PAUSE_S)) == 5 * STEP_MIB
    assert online_mib(lent.calm(using(0), PAUSE_S + WINDOW_S - 1)) == 5 * STEP_MIB
    assert online_mib(lent.calm(using(0), PAUSE_S + WINDOW_S)) == 0


def test_rise_waits_a_minute_after_what_was_said_last() -> None:
    lent = Lent()
    lent.calm(using(5000), 0)
    assert online_mib(lent.calm(using(3000), WINDOW_S)) == 3 * STEP_MIB
    lent.calm(using(1000), WINDOW_S + 1)
    assert online_mib(lent.calm(using(1000), 2 * WINDOW_S)) == STEP_MIB
    assert online_mib(lent.calm(using(5000), 2 * WINDOW_S + PAUSE_S)) == 5 * STEP_MIB
    # Of one minute before, when it was 1000; what was said last is not a minute ago.
    assert online_mib(lent.calm(using(3000), 3 * WINDOW_S + PAUSE_S - 1)) == 5 * STEP_MIB
    assert online_mib(lent.calm(using(3000), 3 * WINDOW_S + PAUSE_S)) == 3 * STEP_MIB


@pytest.mark.parametrize(
    ("memory_mib", "step_mib"), [(9856, 256), (16_160, 256), (40_960, 512), (143_771, 1024)]
)
def test_steps_are_as_large_as_the_card(memory_mib: int, step_mib: int) -> None:
    card = inventory("n0", 1, memory_mib=memory_mib, online_mib=1).cards[0]
    assert online_mib(Lent().calm(replace(ONE, cards=(card,)), 0)) == step_mib


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
    lent, now_s = Lent(), 0.0
    writes: list[tuple[float, int]] = []
    used: list[tuple[float, int]] = []
    before: Inventory | None = None
    for wait_s, mib in steps:
        now_s += wait_s
        used.append((now_s, mib))
        said = lent.calm(using(mib), now_s)
        if said != before:
            writes.append((now_s, online_mib(said)))
            peak = max(each for at_s, each in used if at_s > now_s - WINDOW_S)
            assert peak <= online_mib(said) < peak + STEP_MIB
        before = said
    for (earlier_s, earlier_mib), (later_s, later_mib) in itertools.pairwise(writes):
        assert later_s - earlier_s >= (PAUSE_S if later_mib > earlier_mib else WINDOW_S)
