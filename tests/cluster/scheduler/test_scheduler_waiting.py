"""Pods that wait: what is kept for them, and who ends for them."""

import pytest

from cluster.scheduler.reservations import Reservations
from cluster.scheduler.scheduler import Scheduler
from oci_specs.refusal import Refusal
from tests.cluster.scheduler_support import inventory, pod, request

AFTER_S = 60.0
FOR_S = 600.0


@pytest.fixture
def scheduler() -> Scheduler:
    """Two nodes of two cards, on each card a container with half of it."""
    made = Scheduler()
    for name in ("n0", "n1"):
        made.put_node(name, inventory(name, 2), 64_000, 262_144)
        for index in range(2):
            half = pod(f"{name}-{index}", request(core=50), priority=index, created_s=index)
            made.put_pod(half, name, {"c0": (f"GPU-{name}-{index}",)})
    return made


NAMES = ["n0", "n1"]
BIG = pod("big", request(), created_s=10)


def test_place_is_kept_only_after_the_wait_and_bars_younger_pods_alone(scheduler: Scheduler) -> None:
    waiting = Reservations(scheduler, reserve_after_s=AFTER_S, reserve_for_s=FOR_S)
    assert not scheduler.filter(BIG, NAMES).fits
    assert waiting.refused(BIG, NAMES, 100) is None
    assert waiting.refused(BIG, NAMES, 100 + AFTER_S - 1) is None
    kept = waiting.refused(BIG, NAMES, 100 + AFTER_S)
    assert kept is not None
    [uuid] = kept.uuids
    other = next(f"GPU-{kept.node}-{index}" for index in range(2) if f"GPU-{kept.node}-{index}" != uuid)

    younger = pod("younger", request(core=50), created_s=11)
    assert scheduler.filter(younger, NAMES).fits == NAMES
    assert scheduler.choose(younger, kept.node) == {"c0": (other,)}
    scheduler.put_pod(younger, kept.node, {"c0": (other,)})
    youngest = pod("youngest", request(core=50), created_s=12)
    assert kept.node not in scheduler.filter(youngest, NAMES).fits
    assert "1 reserved for pods that wait longer" in scheduler.reason(youngest, kept.node)

    older = pod("older", request(core=50), created_s=9)
    more_important = pod("more-important", request(core=50), created_s=12, priority=1)
    for allowed in (older, more_important):
        assert scheduler.choose(allowed, kept.node) == {"c0": (uuid,)}


def test_one_it_is_kept_for_gets_it_and_then_nothing_is_kept(scheduler: Scheduler) -> None:
    waiting = Reservations(scheduler, reserve_after_s=AFTER_S, reserve_for_s=FOR_S)
    waiting.refused(BIG, NAMES, 0)
    kept = waiting.refused(BIG, NAMES, AFTER_S)
    assert kept is not None
    [uuid] = kept.uuids
    index = uuid.rpartition("-")[2]
    ended = f"{kept.node}-{index}"
    scheduler.remove_pod(ended)
    small = pod("small", request(core=10), created_s=11)
    assert uuid not in scheduler.choose(small, kept.node)["c0"]
    assert scheduler.filter(BIG, NAMES).fits == [kept.node]
    scheduler.put_pod(BIG, kept.node, scheduler.choose(BIG, kept.node))
    waiting.forget(BIG.uid)
    assert len(waiting) == 0
    assert scheduler.reserved == {}


def test_reservation_ends_and_the_wait_begins_anew(scheduler: Scheduler) -> None:
    waiting = Reservations(scheduler, reserve_after_s=AFTER_S, reserve_for_s=FOR_S)
    waiting.refused(BIG, NAMES, 0)
    assert waiting.refused(BIG, NAMES, AFTER_S) is not None
    waiting.tick(AFTER_S + FOR_S - 1)
    assert waiting.of(BIG.uid) is not None
    waiting.tick(AFTER_S + FOR_S)
    assert waiting.of(BIG.uid) is None
    assert scheduler.reserved == {}
    assert waiting.refused(BIG, NAMES, AFTER_S + FOR_S + 1) is None


def test_clock_that_is_set_back_reserves_nothing_for_ever(scheduler: Scheduler) -> None:
    waiting = Reservations(scheduler, reserve_after_s=AFTER_S, reserve_for_s=FOR_S)
    waiting.refused(BIG, NAMES, 10_000)
    assert waiting.refused(BIG, NAMES, 0) is None
    assert waiting.refused(BIG, NAMES, AFTER_S) is not None
    waiting.tick(-10_000)
    assert len(waiting) == 0


def test_nothing_is_kept_where_the_pod_never_fits(scheduler: Scheduler) -> None:
    waiting = Reservations(scheduler, reserve_after_s=AFTER_S, reserve_for_s=FOR_S)
    huge = pod("huge", request(count=4))
    waiting.refused(huge, NAMES, 0)
    assert waiting.refused(huge, NAMES, AFTER_S) is None


def test_two_that_wait_keep_different_cards(scheduler: Scheduler) -> None:
    waiting = Reservations(scheduler, reserve_after_s=AFTER_S, reserve_for_s=FOR_S)
    both = [BIG, pod("big-too", request(), created_s=20)]
    for each in both:
        waiting.refused(each, NAMES, 0)
        waiting.refused(each, NAMES, AFTER_S)
    one, other = (waiting.of(each.uid) for each in both)
    assert one is not None
    assert other is not None
    assert not one.uuids & other.uuids


def test_preemption_ends_the_least_important_and_as_few_as_make_room(scheduler: Scheduler) -> None:
    urgent = pod("urgent", request(), priority=2)
    assert scheduler.preempt(urgent, {"n0": [], "n1": [], "unknown": []}) == {"n0": ["n0-0"], "n1": ["n1-0"]}
    assert scheduler.preempt(pod("both", request(count=2), priority=2), {"n0": []}) == {
        "n0": ["n0-1", "n0-0"]
    }
    small = pod("small", request(core=50), priority=2)
    assert scheduler.preempt(small, {"n0": []}) == {"n0": []}


def test_preemption_spares_equals_and_whoever_cannot_make_room(scheduler: Scheduler) -> None:
    assert scheduler.preempt(pod("equal", request(), priority=0), {"n0": []}) == {}
    # n0-1 has priority 1 as well.
    assert scheduler.preempt(pod("two", request(count=2), priority=1), {"n0": []}) == {}
    assert scheduler.preempt(pod("three", request(count=3), priority=9), {"n0": []}) == {}


def test_preemption_ends_whom_the_stock_scheduler_ends_anyway(scheduler: Scheduler) -> None:
    urgent = pod("urgent", request(), priority=2)
    assert scheduler.preempt(urgent, {"n0": ["n0-1", "of-cpu-alone"]}) == {"n0": ["of-cpu-alone", "n0-1"]}


def test_pod_without_room_has_a_reason_that_names_cards(scheduler: Scheduler) -> None:
    found = scheduler.filter(BIG, NAMES)
    assert found.fits == []
    assert found.refused["n0"] == "node n0: a whole GPU asked, but each of 2 GPUs has other containers"
    with pytest.raises(Refusal, match="a whole GPU asked"):
        scheduler.choose(BIG, "n0")
