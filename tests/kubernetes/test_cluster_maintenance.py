"""Maintenance by operators: upgrade mgpu, delete the agent's pod, drain a node."""

import pytest

from tests.kubernetes.cluster import Cluster
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(900)

MEMORY = "mgpu.dev/memory-mib"
AGENT = ("--namespace=mgpu-system", "-l", "app.kubernetes.io/component=agent")


@pytest.fixture
def before(cluster: Cluster) -> Cluster:
    """With a pod `before` of 1024 MiB that runs."""
    cluster.apply(cluster.pod("before", limits={MEMORY: "1024"}))
    cluster.running("before")
    return cluster


def test_upgrade_leaves_pods_running(before: Cluster) -> None:
    pid = before.mgpud_pid()
    before.on_node("/opt/mgpu/bin/mgpu", "upgrade")
    assert before.mgpud_pid() not in (0, pid)
    assert before.totals_mib("before") == [1024]
    before.apply(before.pod("after", limits={MEMORY: "1024"}))
    before.running("after")
    assert before.restarts("before") == 0


def test_deleted_agent_waits_for_the_pods_that_it_serves(before: Cluster) -> None:
    [agent] = before.get("pod", *AGENT)["items"]
    before.run("delete", "pod", *AGENT, "--wait=false")
    until(lambda: "deletionTimestamp" in before.get("pod", *AGENT)["items"][0]["metadata"], "it is to end")
    assert before.totals_mib("before") == [1024]
    assert before.restarts("before") == 0
    before.run("delete", "pod", "before", "--wait=true")
    until(lambda: _agents(before, agent["metadata"]["uid"]), "the next agent's pod is there", timeout_s=180)
    until(lambda: before.mgpud_pid() != 0, "the next mgpud serves", timeout_s=120)
    before.apply(before.pod("after", limits={MEMORY: "1024"}))
    before.running("after")


def _agents(cluster: Cluster, not_uid: str) -> bool:
    uids = [pod["metadata"]["uid"] for pod in cluster.get("pod", *AGENT)["items"]]
    return bool(uids) and not_uid not in uids


def test_drained_node_has_no_container_with_a_gpu(before: Cluster) -> None:
    node = before.get("pod", "before")["spec"]["nodeName"]
    try:
        before.run(
            "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=120s"
        )
        assert before.mgpu("ps") == []
        before.apply(before.pod("after", limits={MEMORY: "1024"}))
        until(lambda: before.phase("after") == "Pending", "it waits for the node")
    finally:
        before.run("uncordon", node)
    before.running("after")
    assert before.totals_mib("after") == [1024]
