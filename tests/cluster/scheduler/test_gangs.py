"""Gangs, pure: all of one have cards or none, near one another, and no two wait for each other."""

import random
from collections import deque
from typing import Any

import pytest

from cluster.scheduler.gangs import DOMAINS, Gangs, Member
from cluster.scheduler.groups import group_of
from cluster.scheduler.pods import Pod
from cluster.scheduler.scheduler import Scheduler
from tests.cluster.scheduler_support import inventory, pod, request

NODES = [f"n{number}" for number in range(6)]
CARDS = 4
WHOLE = request()
SIZES = (2, 2, 3, 4, 6, 8, 12, 16)


def cluster(names: list[str] = NODES) -> Scheduler:
    made = Scheduler("fgd")
    for name in names:
        made.put_node(name, inventory(name, CARDS), 64_000, 262_144)
    return made


def members(*pods: Pod, names: list[str] = NODES) -> list[Member]:
    return [Member(pod=each, names=names) for each in pods]


def free(scheduler: Scheduler) -> int:
    return sum(not card.tenants for node in scheduler.occupancy.nodes.values() for card in node.cards)


def ranks(gang: str, number: int, **spec: Any) -> list[Pod]:
    return [pod(f"{gang}-{rank}", WHOLE, **spec) for rank in range(number)]


def test_gang_that_does_not_fit_whole_holds_nothing() -> None:
    scheduler = cluster(["n0"])
    gangs = Gangs(scheduler)
    five = ranks("a", 5)
    assert gangs.place("a", members(*five), 5, {}, 0) == (
        "a: only 4 of 5 pods have room at once, so none is placed"
    )
    assert free(scheduler) == CARDS
    assert all(gangs.of(each.uid) is None for each in five)
    # Where four of them make sense, four are placed.
    assert gangs.place("a", members(*five), 4, {}, 0) == ""
    assert free(scheduler) == 0
    assert sum(gangs.of(each.uid) is not None for each in five) == 4


def test_places_count_as_taken_until_all_have_come_or_the_time_is_over() -> None:
    scheduler = cluster(["n0"])
    gangs = Gangs(scheduler, together_s=10)
    three = ranks("a", 3)
    assert gangs.place("a", members(*three), 3, {}, 100) == ""
    assert not scheduler.filter(pod("other", request(count=2)), ["n0"]).fits
    for each in three[:2]:
        gangs.came(each.uid)
    assert not gangs.is_whole("a-0")
    gangs.tick(109)
    assert gangs.of("a-0") is not None
    gangs.tick(110)
    assert gangs.why("a") == "a: 2 of 3 pods came in time, so all that was kept for it is given back"
    assert free(scheduler) == CARDS
    # Others have their turn before it is kept for again.
    assert gangs.place("a", members(*three), 3, {}, 119) == gangs.why("a")
    assert gangs.place("a", members(*three), 3, {}, 120) == ""
    for each in three:
        gangs.came(each.uid)
    assert gangs.is_whole("a-0")


def test_gang_whose_pod_is_gone_holds_nothing() -> None:
    scheduler = cluster(["n0"])
    gangs = Gangs(scheduler)
    gangs.place("a", members(*ranks("a", 3)), 3, {}, 0)
    gangs.gone("a-1")
    assert free(scheduler) == CARDS
    # All of those that are left may have been bound meanwhile.
    assert gangs.place("a", [], 0, {}, 0) != ""
    assert gangs.place("a", members(*ranks("a", 3)), 3, {}, 0) == ""


def test_cards_of_a_binding_that_failed_are_kept_for_its_pod() -> None:
    scheduler = cluster(["n0"])
    gangs = Gangs(scheduler)
    gangs.place("a", members(*ranks("a", 2)), 2, {}, 0)
    for uid in ("a-0", "a-1"):
        gangs.came(uid)
    place = gangs.of("a-1")
    assert place is not None
    for uid in ("a-0", "a-1"):
        gangs.take(uid)
    assert gangs.of("a-1") is None
    gangs.put_back("a", "a-1", place)
    assert gangs.is_whole("a-1")
    assert free(scheduler) == CARDS - 2
    gangs.tick(1000)
    assert free(scheduler) == CARDS - 1


@pytest.mark.parametrize("key", DOMAINS)
def test_nodes_of_one_domain_come_first(key: str) -> None:
    """By score alone a gang would be spread over whatever has most room."""
    scheduler = cluster()
    labels = {name: {key: f"d{number // 2}"} for number, name in enumerate(NODES)}
    # No rack is empty: the first has room for three, the second for six, the third for seven.
    for name, cards in (("n0", 2), ("n1", 3), ("n2", 1), ("n3", 1), ("n5", 1)):
        for index in range(cards):
            scheduler.put_pod(pod(f"{name}.{index}", WHOLE), name, {"c0": (f"GPU-{name}-{index}",)})
    gangs = Gangs(scheduler)
    six = ranks("a", 6)
    assert gangs.place("a", members(*six), 6, labels, 0) == ""
    where = {place.node for each in six if (place := gangs.of(each.uid)) is not None}
    assert where == {"n2", "n3"}
    # What fits in no domain is placed anyway.
    assert gangs.place("b", members(*ranks("b", 8)), 8, labels, 0) == ""


def test_domains_are_tried_in_the_order_of_the_setting() -> None:
    scheduler = cluster()
    labels = {
        name: {"near": f"c{number % 3}", "far": f"r{number // 3}"} for number, name in enumerate(NODES)
    }
    gangs = Gangs(scheduler, domains=["near", "far"])
    for gang, size, expected in (("a", 8, "near"), ("b", 12, "far")):
        pods = ranks(gang, size)
        assert gangs.place(gang, members(*pods), size, labels, 0) == ""
        nodes = {place.node for each in pods if (place := gangs.of(each.uid)) is not None}
        assert len({labels[name][expected] for name in nodes}) == 1
        gangs.give_back(gang, "")


def test_cpu_of_the_nodes_counts_for_all_pods_together() -> None:
    """The stock scheduler sees one pod at a time, and would find that the fourth has no CPU."""
    scheduler = cluster(["n0"])
    gangs = Gangs(scheduler)
    assert "only 3 of 4" in gangs.place("a", members(*ranks("a", 4, cpu_milli=20_000)), 4, {}, 0)
    assert free(scheduler) == CARDS


def test_pods_that_may_be_on_other_nodes_than_the_rest_are_placed_there() -> None:
    scheduler = cluster()
    gangs = Gangs(scheduler)
    first, second = ranks("a", 2)
    both = [Member(pod=first, names=["n4"]), Member(pod=second, names=["n1"])]
    assert gangs.place("a", both, 2, {}, 0) == ""
    found = [gangs.of(each.uid) for each in (first, second)]
    assert [each.node for each in found if each is not None] == ["n4", "n1"]


def test_what_does_not_fit_is_not_tried_for_each_of_its_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """All pods of a gang that waits ask, and each try looks at all nodes for all of them."""
    scheduler = cluster(["n0"])
    scheduler.put_pod(pod("there", WHOLE), "n0", {"c0": ("GPU-n0-0",)})
    gangs, tries, best = Gangs(scheduler), [0], scheduler.best

    def counted(*args: Any) -> str | None:
        tries[0] += 1
        return best(*args)

    monkeypatch.setattr(scheduler, "best", counted)
    four = members(*ranks("a", 4), names=["n0"])
    other = members(*ranks("b", 4), names=["n0"])
    for gang, ranks_of_it in (("a", four), ("b", other)) * 3:
        said = {gangs.place(gang, ranks_of_it, 4, {}, now_s) for now_s in range(9)}
        assert len(said) == 1
    assert tries == [8]
    # A reservation of another's may have ended: nothing tells of that.
    gangs.place("a", four, 4, {}, 10)
    assert tries == [12]
    gangs.place("a", four, 4, {}, 11)
    scheduler.remove_pod("there")
    assert gangs.place("a", four, 4, {}, 12) == ""


def one_by_one(sizes: dict[str, int]) -> set[str]:
    """Pods of gangs as a scheduler places them that knows no gang, in turns; the gangs that are whole."""
    scheduler = cluster()
    waiting = deque(
        (gang, each)
        for rank in range(max(sizes.values()))
        for gang, size in sizes.items()
        for each in ranks(gang, size)[rank : rank + 1]
    )
    placed = dict.fromkeys(sizes, 0)
    while waiting:
        gang, each = waiting.popleft()
        name = scheduler.best(each, NODES)
        if name is not None:
            scheduler.put_pod(each, name, scheduler.choose(each, name))
            placed[gang] += 1
    return {gang for gang, size in sizes.items() if placed[gang] == size}


def test_two_halves_that_wait_for_each_other_are_never_made() -> None:
    sizes = {"a": 16, "b": 16}
    assert one_by_one(sizes) == set(), "without gangs each has 12 of 24 GPUs and neither begins"
    scheduler = cluster()
    gangs = Gangs(scheduler)
    assert gangs.place("a", members(*ranks("a", 16)), 16, {}, 0) == ""
    assert gangs.place("b", members(*ranks("b", 16)), 16, {}, 0) != ""
    assert free(scheduler) == 8


def test_churn_of_a_thousand_gangs_ends_with_all_of_them_served() -> None:
    """Gangs of up to two thirds of all GPUs and single pods come and go; some pods of a gang come late or
    never, some bindings fail, some pods are deleted. After every step each gang has all of its pods or none.
    """
    random.seed(27)
    scheduler = cluster()
    gangs = Gangs(scheduler, together_s=10)
    labels = {name: {DOMAINS[1]: f"r{number // 2}"} for number, name in enumerate(NODES)}
    todo = {f"g{number}": ranks(f"g{number}", random.choice(SIZES)) for number in range(1000)}
    waiting: deque[str] = deque(todo)
    running: dict[str, list[Pod]] = {}
    singles: deque[Pod] = deque()
    done, late, now_s = 0, 0, 0.0

    def held(gang: str) -> int:
        return sum(scheduler.occupancy.held(each.uid) is not None for each in todo[gang])

    while waiting or running:
        now_s += 1
        gangs.tick(now_s)
        # As the stock scheduler takes those that wait: some of them, in any order.
        for gang in random.sample(list(waiting)[:12], k=min(4, len(waiting))):
            pods = todo[gang]
            if gangs.of(pods[0].uid) is None:
                why = gangs.place(gang, members(*pods), len(pods), labels, now_s)
                assert held(gang) == (0 if why else len(pods))
                if why:
                    continue
            if random.random() < 0.1:
                late += 1
                gangs.came(pods[0].uid)
                continue
            if random.random() < 0.05:
                gangs.gone(random.choice(pods).uid)
                assert held(gang) == 0
                continue
            for each in pods:
                gangs.came(each.uid)
            for each in pods:
                place = gangs.of(each.uid)
                assert place is not None
                assert gangs.is_whole(each.uid)
                gangs.take(each.uid)
                if random.random() < 0.1:
                    gangs.put_back(gang, each.uid, place)
                    gangs.take(each.uid)
            waiting.remove(gang)
            running[gang] = pods
        if len(singles) < 3:
            single = pod(f"s{now_s}", request(random.choice((1024, 40_000))))
            name = scheduler.best(single, NODES)
            if name is not None:
                scheduler.put_pod(single, name, scheduler.choose(single, name))
                singles.append(single)
        if singles and (random.random() < 0.5 or now_s % 8 == 0):
            scheduler.remove_pod(singles.popleft().uid)
        for gang in list(running):
            if random.random() < 0.3:
                for each in running.pop(gang):
                    scheduler.remove_pod(each.uid)
                done += 1
        assert all(held(gang) in (0, len(todo[gang])) for gang in [*list(waiting)[:12], *running])
        assert now_s < 100_000, f"{len(waiting)} gangs wait for ever"
    assert done == 1000
    assert late > 50
    assert gangs.of("g0-0") is None


GANG = {"gang": {"minCount": 4}}
LWS = {"leaderWorkerTemplate": {"size": 4}}
POD_GROUP = {"spec": {"minMember": 4}}


def jobset(**spec: Any) -> dict[str, Any]:
    workers = {"name": "workers", "replicas": 2, "template": {"spec": {"parallelism": 3, "completions": 3}}}
    driver = {"name": "driver", "replicas": 1, "template": {"spec": {}}}
    return {"spec": {"replicatedJobs": [workers, driver], **spec}}


@pytest.mark.parametrize(
    ("meta", "spec", "value", "size"),
    [
        ({}, {"schedulingGroup": {"podGroupName": "train"}}, {"spec": {"schedulingPolicy": GANG}}, 4),
        (
            {},
            {"schedulingGroup": {"podGroupName": "train"}},
            {"spec": {"schedulingPolicy": {"basic": {}}}},
            1,
        ),
        ({"labels": {"scheduling.x-k8s.io/pod-group": "train"}}, {}, POD_GROUP, 4),
        ({"annotations": {"scheduling.k8s.io/group-name": "train"}}, {}, POD_GROUP, 4),
        (
            {
                "labels": {
                    "pod-group.scheduling.sigs.k8s.io/name": "train",
                    "pod-group.scheduling.sigs.k8s.io/min-available": "4",
                }
            },
            {},
            None,
            4,
        ),
        (
            {
                "labels": {"kueue.x-k8s.io/pod-group-name": "train"},
                "annotations": {"kueue.x-k8s.io/pod-group-total-count": "4"},
            },
            {},
            None,
            4,
        ),
        ({"labels": {"leaderworkerset.sigs.k8s.io/name": "train"}}, {}, {"spec": LWS}, 4),
        (
            {"labels": {"leaderworkerset.sigs.k8s.io/name": "train"}},
            {},
            {"spec": {**LWS, "startupPolicy": "LeaderReady"}},
            1,
        ),
        ({"labels": {"jobset.sigs.k8s.io/jobset-name": "train"}}, {}, jobset(), 7),
        (
            {"labels": {"jobset.sigs.k8s.io/jobset-name": "train"}},
            {},
            jobset(startupPolicy={"startupPolicyOrder": "InOrder"}),
            1,
        ),
        ({"labels": {"kueue.x-k8s.io/pod-group-name": "train"}}, {}, None, 1),
    ],
)
def test_names_that_people_have_for_gangs(
    meta: dict[str, Any], spec: dict[str, Any], value: dict[str, Any] | None, size: int
) -> None:
    found = group_of({"namespace": "team-a", **meta}, spec)
    assert found is not None
    assert "team-a/train" in found.said
    assert (found.size if value is None else found.counted(value)) == size
    assert bool(found.kinds) == (value is not None)


def test_pods_without_such_a_name_are_of_no_gang() -> None:
    assert group_of({"labels": {"batch.kubernetes.io/job-name": "train"}}, {}) is None
