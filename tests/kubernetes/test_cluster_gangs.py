"""Pods that only make sense together, by the labels that need nothing else in the cluster: all or none."""

from functools import partial

import pytest

from tests.kubernetes.cluster import Cluster, Object, until

pytestmark = pytest.mark.timeout(900)

GROUP = "pod-group.scheduling.sigs.k8s.io"


def _gang(cluster: Cluster, name: str, ranks: int, mib: int) -> list[Object]:
    labels = {f"{GROUP}/name": name, f"{GROUP}/min-available": str(ranks)}
    return [
        cluster.pod(f"{name}-{rank}", limits={"mgpu.dev/memory-mib": str(mib)}, labels=labels)
        for rank in range(ranks)
    ]


def _placed(cluster: Cluster, gang: list[Object]) -> int:
    names = [pod["metadata"]["name"] for pod in gang]
    found = cluster.get("pods")["items"]
    return sum(pod["metadata"]["name"] in names and "nodeName" in pod["spec"] for pod in found)


def _large(cluster: Cluster) -> int:
    """So much that no second one of it is on any GPU."""
    cards = cluster.cards()
    return int(max(card["memory_mib"] for card in cards) // 2 + 256)


def test_gang_waits_as_one_until_all_have_room(cluster: Cluster) -> None:
    mib, ranks = _large(cluster), len(cluster.cards())
    cluster.apply(cluster.pod("other", limits={"mgpu.dev/memory-mib": str(mib)}))
    cluster.running("other")
    gang = _gang(cluster, "train", ranks, mib)
    cluster.apply(*gang)
    why = f"only {ranks - 1} of {ranks} pods have room at once, so none is placed"
    for pod in gang:
        name = pod["metadata"]["name"]
        until(lambda name=name: why in cluster.unschedulable(name), f"{name} says why")  # type: ignore[misc]
    assert _placed(cluster, gang) == 0
    cluster.run("delete", "pod", "other", "--wait=true")
    cluster.running(*(pod["metadata"]["name"] for pod in gang))
    assert cluster.over_committed() == []


def test_of_two_gangs_that_do_not_fit_together_one_runs_and_then_the_other(cluster: Cluster) -> None:
    mib, ranks = _large(cluster), len(cluster.cards()) // 2 + 1
    gangs = [_gang(cluster, name, ranks, mib) for name in ("a", "b")]
    # In turn, as two controllers make them at once.
    cluster.apply(*(pod for pair in zip(*gangs, strict=True) for pod in pair))
    until(lambda: ranks in [_placed(cluster, gang) for gang in gangs], "one of them is placed")
    first, second = sorted(gangs, key=partial(_placed, cluster), reverse=True)
    cluster.running(*(pod["metadata"]["name"] for pod in first))
    assert _placed(cluster, second) == 0
    cluster.run("delete", "pod", *(pod["metadata"]["name"] for pod in first), "--wait=true")
    cluster.running(*(pod["metadata"]["name"] for pod in second))
