"""Pods by card: what fits no GPU waits and says so, and nothing is ever over-committed."""

from functools import partial

import pytest

from tests.kubernetes.cluster import Cluster, KubectlError, until

pytestmark = pytest.mark.timeout(900)

MEMORY = "mgpu.dev/memory-mib"


def test_pod_that_fits_the_sum_but_no_gpu_waits_and_names_gpus(cluster: Cluster) -> None:
    cards = cluster.cards()
    assert len(cards) > 1, "several GPUs are needed"
    half = max(card["memory_mib"] for card in cards) * 6 // 10
    assert half <= min(card["memory_mib"] for card in cards), "GPUs of about one size are needed"
    fill = [f"fill-{i}" for i in range(len(cards))]
    cluster.apply(*(cluster.pod(name, limits={MEMORY: str(half)}) for name in fill))
    cluster.running(*fill)
    # Each GPU has two fifths left: two of them have room for this, and no single one.
    cluster.apply(cluster.pod("one-more", limits={MEMORY: str(half)}))
    until(lambda: "MiB" in cluster.unschedulable("one-more"), "the pod waits, and says why")
    why = cluster.unschedulable("one-more")
    assert f"{half} MiB asked" in why
    assert "on GPU" in why
    assert cluster.phase("one-more") == "Pending"
    cluster.run("delete", "pod", fill[0], "--wait=true")
    cluster.running("one-more")


def _fifths(cluster: Cluster) -> list[str]:
    """Pods of a fifth of a GPU, more than there is room for: their names."""
    cards = cluster.cards()
    each = min(card["memory_mib"] for card in cards) // 5
    pods = [f"p-{i}" for i in range(4 * len(cards) + 4)]
    cluster.apply(*(cluster.pod(name, limits={MEMORY: str(each)}) for name in pods))
    return pods


def _run_and_fit(cluster: Cluster, pods: list[str]) -> None:
    """All that fit run, no start of any failed, and no GPU is over-committed by mgpud's grants, which the
    scheduler has no part in.
    """
    cards = cluster.cards()
    until(
        lambda: sum(cluster.phase(name) == "Running" for name in pods) >= 4 * len(cards),
        "all that fit run",
        timeout_s=300,
    )
    assert cluster.over_committed() == []
    refused = cluster.get("events", "--field-selector", "reason=GPURefused")["items"]
    assert [event["message"] for event in refused] == [], "a failed start: two decided"
    assert not [name for name in pods if cluster.phase(name) == "Failed"]


def test_no_gpu_is_over_committed_by_many_pods_at_once(cluster: Cluster) -> None:
    _run_and_fit(cluster, _fifths(cluster))


def _has_placed(cluster: Cluster, number: int) -> bool:
    return sum("nodeName" in pod["spec"] for pod in cluster.get("pods")["items"]) >= number


def test_schedulers_that_take_over_from_one_another_place_nothing_twice(cluster: Cluster) -> None:
    pods = _fifths(cluster)
    for program, placed in (("mgpu-scheduler", 2), ("kube-scheduler", 5), ("mgpu-scheduler", 9)):
        until(partial(_has_placed, cluster, placed), f"{placed} are placed", timeout_s=180)
        cluster.kill(program)
    _run_and_fit(cluster, pods)


def test_placement_that_the_user_wrote_is_refused_in_one_line(cluster: Cluster) -> None:
    with pytest.raises(KubectlError) as refused:
        cluster.apply(
            cluster.pod("forged", limits={MEMORY: "1024"}, annotations={"mgpu.dev/placement": "{}"})
        )
    assert "mgpu.dev/placement" in str(refused.value)


def test_misspelt_key_is_refused_in_one_line(cluster: Cluster) -> None:
    with pytest.raises(KubectlError) as refused:
        cluster.apply(cluster.pod("typo", annotations={"vke.volcengine.com/mgpu-memroy": "1024"}))
    assert "mgpu-memroy" in str(refused.value)


def test_pod_of_higher_priority_takes_the_place_of_the_fewest(cluster: Cluster) -> None:
    cards = cluster.cards()
    important = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": cluster.namespace},
        "value": 1000,
    }
    cluster.apply(important)
    try:
        low = [f"low-{i}" for i in range(len(cards))]
        least, most = (which(card["memory_mib"] for card in cards) for which in (min, max))
        # Beside none of them, and in the place of one on any GPU.
        high = most - least * 8 // 10 + 1
        assert high <= least
        cluster.apply(*(cluster.pod(name, limits={MEMORY: str(least * 8 // 10)}) for name in low))
        cluster.running(*low)
        cluster.apply(cluster.pod("high", limits={MEMORY: str(high)}, priorityClassName=cluster.namespace))
        cluster.running("high")
        left = [pod["metadata"]["name"] for pod in cluster.get("pods")["items"]]
        [victim] = [name for name in low if name not in left]
        assert f"Preempting: pod {cluster.namespace}/{victim} ends on node " in cluster.events("high")
        assert "Preempted: " in cluster.events(victim)
        assert f"{cluster.namespace}/high" in cluster.events(victim)
    finally:
        cluster.run("delete", "priorityclass", cluster.namespace)
