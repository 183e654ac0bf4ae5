"""The percentages that the scheduler is told, from the grants on the cards."""

from hypothesis import given
from hypothesis import strategies as st

from native_sched.daemon.grants import quota
from native_sched.daemon.grants.quota import Part
from oci_specs.request import Qos

CLASSES: tuple[Qos, ...] = ("online", "offline")


def of(*parts: tuple[Qos, int | None]) -> list[int]:
    """The percentages of containers on one card, in the order they are given."""
    found = quota.percents([[Part(number, qos, core) for number, (qos, core) in enumerate(parts)]])
    return [found[number] for number in range(len(parts))]


def test_quota_is_exact_and_other_containers_share_the_rest() -> None:
    assert of(("online", 30)) == [30]
    assert of(("online", None)) == [100]
    assert of(("online", 30), ("online", None), ("online", None)) == [30, 35, 35]
    assert of(("online", 30), ("offline", None), ("offline", None), ("offline", None)) == [30, 33, 33, 33]
    assert of(("online", 100), ("offline", None)) == [100, 100]


def test_percents_are_positive_and_at_most_a_card() -> None:
    """Where idle time is shared, admission takes containers without a quota beside quotas of a whole card."""
    assert of(("online", 100), ("online", None)) == [99, 1]
    without: tuple[Qos, None] = ("online", None)
    assert of(("online", 60), ("online", 40), *[without] * 3) == [57, 40, 1, 1, 1]


def test_percent_is_the_least_of_several_cards() -> None:
    crowded = [Part(1, "online", None), Part(2, "online", 60), Part(3, "online", None)]
    assert quota.percents([crowded, [Part(1, "online", None)]]) == {1: 20, 2: 60, 3: 20}


@st.composite
def any_cards(draw: st.DrawFn) -> list[list[Part]]:
    """Cards as admission leaves them; containers may be on several."""
    fixed = draw(st.booleans())
    cards: list[list[Part]] = [[] for _ in range(draw(st.integers(1, 3)))]
    for tenant in range(draw(st.integers(0, 16))):
        qos: Qos = draw(st.sampled_from(CLASSES))
        core = draw(st.none() | st.integers(1, 100))
        for card in draw(st.sets(st.sampled_from(range(len(cards))), min_size=1)):
            same = [part for part in cards[card] if part.qos == qos]
            least = 1 if fixed else 0
            taken = sum(least if part.core_percent is None else part.core_percent for part in same)
            if taken + (core or least) <= 100:
                cards[card].append(Part(tenant, qos, core))
    return cards


def lent(parts: list[Part], qos: Qos) -> int:
    """Percent of the class that its quotas have to leave to those without one."""
    same = [part for part in parts if part.qos == qos]
    taken = sum(1 if part.core_percent is None else part.core_percent for part in same)
    return max(0, taken - 100)


@given(any_cards())
def test_random_percents_are_positive_and_at_most_a_card(cards: list[list[Part]]) -> None:
    found = quota.percents(cards)
    assert set(found) == {part.tenant for parts in cards for part in parts}
    for parts in cards:
        for qos in CLASSES:
            assert sum(found[part.tenant] for part in parts if part.qos == qos) <= 100
        for part in parts:
            assert 1 <= found[part.tenant] <= 100
            if part.core_percent is not None and not any(lent(card, part.qos) for card in cards):
                assert found[part.tenant] == part.core_percent
        alike = [part for part in parts if part.core_percent is None and on_one_card(part, cards)]
        for qos in CLASSES:
            assert len({found[part.tenant] for part in alike if part.qos == qos}) <= 1


def on_one_card(part: Part, cards: list[list[Part]]) -> bool:
    return sum(part.tenant == other.tenant for parts in cards for other in parts) == 1
