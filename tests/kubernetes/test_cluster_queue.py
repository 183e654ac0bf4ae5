"""A queue of forty that waits for GPUs while a part of mgpu, or what it leans on, is away for seconds."""

from functools import partial

import pytest

from tests.kubernetes.cluster import SYSTEM, Cluster, Object, until

pytestmark = pytest.mark.timeout(900)

PODS = 40
SECONDS = 2


def _job(cluster: Cluster, mib: int) -> Object:
    pod = cluster.pod("any", limits={"mgpu.dev/memory-mib": str(mib)}, restartPolicy="Never")
    pod["spec"]["containers"][0]["command"] = ["sleep", str(SECONDS)]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "queue"},
        "spec": {
            "parallelism": PODS,
            "completions": PODS,
            "backoffLimit": PODS,
            "template": {"metadata": {}, "spec": pod["spec"]},
        },
    }


def _ended(cluster: Cluster, number: int) -> bool:
    return int(cluster.get("job", "queue")["status"].get("succeeded", 0)) >= number


def _is_judged(cluster: Cluster) -> bool:
    conditions = cluster.get("job", "queue")["status"].get("conditions", [])
    return any(one["type"] in ("Complete", "Failed") and one["status"] == "True" for one in conditions)


def _taken(cluster: Cluster) -> list[str]:
    """The pods that kubelet has taken in."""
    pods = cluster.get("pods")["items"]
    return [pod["metadata"]["name"] for pod in pods if "startTime" in pod["status"]]


@pytest.mark.parametrize(
    "away", ["restarted mgpu-node", "mgpu-node", "mgpud", "mgpu-scheduler", "mgpu-admission", "kubelet"]
)
def test_queue_loses_at_most_one_start_a_node(cluster: Cluster, away: str) -> None:
    # Two on the smallest GPU.
    cluster.apply(_job(cluster, min(card["memory_mib"] for card in cluster.cards()) * 4 // 10))
    until(partial(_ended, cluster, 4), "the first have ended")
    if away == "restarted mgpu-node":
        cluster.run(SYSTEM, "rollout", "restart", "daemonset/mgpu-node")
    elif away == "mgpud":
        for node in cluster.nodes():
            cluster.kill_mgpud(node)
    else:
        cluster.kill(away)
    # What kubelet had taken in and was not running when it came back it fails, as for every device plugin.
    taken = _taken(cluster) if away == "kubelet" else []
    until(partial(_is_judged, cluster), "the job is judged", timeout_s=600)
    failed = [
        f"{pod['spec'].get('nodeName')}: {pod['status'].get('reason')}: {pod['status'].get('message')}"
        for pod in cluster.get("pods")["items"]
        if pod["status"]["phase"] == "Failed" and pod["metadata"]["name"] not in taken
    ]
    status = cluster.get("job", "queue")["status"]
    assert status.get("succeeded") == PODS, f"{status}\n{failed}"
    nodes = [each.partition(":")[0] for each in failed]
    assert len(nodes) == len(set(nodes)), failed
    assert cluster.over_committed() == []
