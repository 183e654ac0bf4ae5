"""The scheduler's decisions against books of the test's own: every card's memory, core and containers."""

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.scheduler.pods import Placed, Pod
from cluster.scheduler.scheduler import SCORE_MAX, Scheduler, Scoring
from oci_specs.refusal import Refusal
from oci_specs.request import Request
from tests.cluster.scheduler_support import A100_MIB, inventory, pod, request, requests


@dataclass
class Card:
    """One card's load, counted without any of the scheduler's code. lent_mib: of reclaimable containers."""

    memory_mib: int = 0
    offline_mib: int = 0
    lent_mib: int = 0
    core: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    containers: int = 0
    whole: int = 0


class Count:
    """Every card of the cluster; take() fails where a card would have more than it is. online_mib: what
    online containers use of each, None where nothing is lent.
    """

    def __init__(self, size_mib: int, most: int, online_mib: int | None = None) -> None:
        self._online_mib = online_mib
        self._cards: dict[str, Card] = defaultdict(Card)
        self._size_mib = size_mib
        self._most = most

    def take(self, taken: Pod, node: str, placed: Placed, sign: int = 1) -> None:
        assert set(placed) == {container.name for container in taken.containers}
        for container in taken.containers:
            asked = container.request
            uuids = placed[container.name]
            assert len(set(uuids)) == len(uuids) == asked.count
            for uuid in uuids:
                assert uuid.startswith(f"GPU-{node}-")
                card = self._cards[uuid]
                mib = sign * self._memory(asked)
                gives_way = asked.reclaimable and self._online_mib is not None
                card.lent_mib += mib * gives_way
                card.memory_mib += mib * (not gives_way)
                card.offline_mib += mib * (asked.qos == "offline")
                card.core[asked.qos] += sign * (
                    100 if asked.whole_cards else (asked.core_percent or 0) // (asked.count or 1)
                )
                card.containers += sign
                card.whole += sign * asked.whole_cards
                assert 0 <= card.memory_mib <= self._size_mib
                if self._online_mib is not None and asked.qos == "offline" and sign > 0:
                    assert card.offline_mib <= self._size_mib - self._online_mib
                assert all(0 <= percent <= 100 for percent in card.core.values())
                assert 0 <= card.containers <= self._most
                assert card.whole == 0 or card.containers == 1

    def _memory(self, asked: Request) -> int:
        if asked.memory is not None:
            mib = (asked.memory.mib or 0) // (asked.count or 1)
            return min(mib, self._size_mib) if asked.core_percent == 100 * (asked.count or 1) else mib
        percent = 100 if asked.whole_cards else (asked.core_percent or 0) // (asked.count or 1)
        return self._size_mib * percent // 100


asking = st.lists(requests(), min_size=1, max_size=3)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=6),
    st.lists(st.tuples(asking, st.integers(0, 16_000), st.booleans()), min_size=1, max_size=60),
    st.sampled_from(get_args(Scoring)),
    st.sampled_from([2, 16]),
    st.sampled_from([None, None, 0, 1000, A100_MIB // 2, A100_MIB]),
)
def test_no_card_is_ever_over_committed_and_nothing_that_fits_is_refused(
    nodes: list[int],
    arrivals: list[tuple[list[Request], int, bool]],
    scoring: Scoring,
    most: int,
    online_mib: int | None,
) -> None:
    scheduler = Scheduler(scoring)
    names = [f"n{number}" for number in range(len(nodes))]
    for name, cards in zip(names, nodes, strict=True):
        scheduler.put_node(name, inventory(name, cards, most=most, online_mib=online_mib), 64_000, 262_144)
    count = Count(A100_MIB, most, online_mib)
    running: list[tuple[Pod, str, Placed]] = []
    for number, (asked, cpu_milli, one_ends) in enumerate(arrivals):
        if one_ends and running:
            ended, node, placed = running.pop(number % len(running))
            scheduler.remove_pod(ended.uid)
            count.take(ended, node, placed, -1)
        wanted = pod(f"p{number}", *asked, cpu_milli=cpu_milli)
        scheduler.arrived(wanted)
        found = scheduler.filter(wanted, names)
        assert sorted([*found.fits, *found.refused]) == names
        for name in names:
            # Each node by itself gives the answer that it gave among all.
            if name in found.fits:
                assert scheduler.choose(wanted, name)
            else:
                with pytest.raises(Refusal):
                    scheduler.choose(wanted, name)
        if not found.fits:
            continue
        scores = dict(scheduler.score(wanted, found.fits))
        assert sorted(scores) == sorted(found.fits)
        assert max(scores.values()) == SCORE_MAX
        node = max(scores, key=lambda name: scores[name])
        placed = scheduler.choose(wanted, node)
        count.take(wanted, node, placed)
        scheduler.put_pod(wanted, node, placed)
        running.append((wanted, node, placed))


def test_memory_that_gives_way_is_where_online_uses_least_and_leaves_online_its_room() -> None:
    scheduler = Scheduler("fgd")
    for name, online_mib in (("n0", 70_000), ("n1", 10_000), ("n2", None)):
        scheduler.put_node(name, inventory(name, 1, online_mib=online_mib), 64_000, 262_144)
        scheduler.put_pod(pod(f"on-{name}", request(memory=A100_MIB)), name, {"c0": (f"GPU-{name}-0",)})
    wanted = pod("batch", request(memory=60_000, qos="offline", reclaimable=True))
    found = scheduler.filter(wanted, ["n0", "n1", "n2"])
    assert found.fits == ["n1"]
    more = pod("more", request(memory=12_000, qos="offline", reclaimable=True))
    scheduler.put_pod(wanted, "n1", scheduler.choose(wanted, "n1"))
    assert scheduler.reason(more, "n1") == (
        f"12000 MiB asked, but the most that is free is {A100_MIB - 70_000} MiB, on GPU 0"
    )
    assert scheduler.reason(more, "n2") == "12000 MiB asked, but the most that is free is 0 MiB, on GPU 0"
    scheduler.remove_pod("on-n1")
    assert scheduler.filter(pod("on", request(memory=A100_MIB)), ["n1"]).fits == ["n1"]


def test_memory_that_gives_way_is_not_on_a_card_that_nothing_is_moved_off() -> None:
    scheduler = Scheduler("fgd")
    lending = inventory("n0", 2, online_mib=0)
    instance = replace(lending.cards[0], mig=True, lending=None)
    scheduler.put_node("n0", replace(lending, cards=(instance, lending.cards[1])), 64_000, 262_144)
    wanted = request(memory=60_000, qos="offline", reclaimable=True)
    assert scheduler.choose(pod("one", wanted), "n0") == {"c0": ("GPU-n0-1",)}
    scheduler.put_pod(pod("one", wanted), "n0", {"c0": ("GPU-n0-1",)})
    assert scheduler.filter(pod("two", wanted), ["n0"]).fits == []
    assert scheduler.filter(pod("three", request(memory=60_000, qos="offline")), ["n0"]).fits == ["n0"]


def test_cards_that_mgpud_chose_count_as_it_says_and_not_as_the_rules_would_have_it() -> None:
    """By the rules each pod would be on a card of its own; mgpud, at another time, chose one for both."""
    scheduler = Scheduler("fgd")
    scheduler.put_node("n0", inventory("n0", 2), 64_000, 262_144)
    for name in ("web-0", "web-1"):
        scheduler.put_pod(pod(name, request(memory=A100_MIB // 2)), "n0", None)
    full = pod("full", request(memory=A100_MIB))
    assert scheduler.filter(full, ["n0"]).fits == []
    chosen = {f"default/{name}": {"c0": ("GPU-n0-1",)} for name in ("web-0", "web-1")}
    scheduler.put_node("n0", replace(inventory("n0", 2), chosen=chosen), 64_000, 262_144)
    assert scheduler.choose(full, "n0") == {"c0": ("GPU-n0-0",)}
