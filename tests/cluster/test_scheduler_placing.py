"""The scheduler's decisions against books of the test's own: every card's memory, core and containers."""

from __future__ import annotations

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
from tests.cluster.scheduler_support import A100_MIB, inventory, pod, request


@dataclass
class Card:
    """What is on one card, counted without any of the scheduler's code."""

    memory_mib: int = 0
    core: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    containers: int = 0
    whole: int = 0


class Count:
    """Every card of the cluster; take() fails where a card would have more than it is."""

    def __init__(self, size_mib: int, most: int) -> None:
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
                card.memory_mib += sign * self._memory(asked)
                card.core[asked.qos] += sign * (
                    100 if asked.whole_cards else (asked.core_percent or 0) // (asked.count or 1)
                )
                card.containers += sign
                card.whole += sign * asked.whole_cards
                assert 0 <= card.memory_mib <= self._size_mib
                assert all(0 <= percent <= 100 for percent in card.core.values())
                assert 0 <= card.containers <= self._most
                assert card.whole == 0 or card.containers == 1

    def _memory(self, asked: Request) -> int:
        if asked.memory is not None:
            mib = (asked.memory.mib or 0) // (asked.count or 1)
            return min(mib, self._size_mib) if asked.core_percent == 100 * (asked.count or 1) else mib
        percent = 100 if asked.whole_cards else (asked.core_percent or 0) // (asked.count or 1)
        return self._size_mib * percent // 100


@st.composite
def requests(draw: st.DrawFn) -> Request:
    count = draw(st.sampled_from([1, 1, 1, 1, 2, 4]))
    kind = draw(st.sampled_from(["memory", "core", "both", "whole"]))
    memory = draw(st.integers(8, 640)) * 128 * count if kind in ("memory", "both") else None
    core = draw(st.integers(1, 100)) * count if kind in ("core", "both") else None
    return request(memory, core, count=count, qos=draw(st.sampled_from(["online", "online", "offline"])))


asking = st.lists(requests(), min_size=1, max_size=3)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=6),
    st.lists(st.tuples(asking, st.integers(0, 16_000), st.booleans()), min_size=1, max_size=60),
    st.sampled_from(get_args(Scoring)),
    st.sampled_from([2, 16]),
)
def test_no_card_is_ever_over_committed_and_nothing_that_fits_is_refused(
    nodes: list[int], arrivals: list[tuple[list[Request], int, bool]], scoring: Scoring, most: int
) -> None:
    scheduler = Scheduler(scoring)
    names = [f"n{number}" for number in range(len(nodes))]
    for name, cards in zip(names, nodes, strict=True):
        scheduler.put_node(name, inventory(name, cards, most=most), 64_000, 262_144)
    count = Count(A100_MIB, most)
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
