"""Maintenance by operators: upgrade mgpu, delete the agent's pod, drain a node."""

import pytest

from tests.kubernetes.cluster import SYSTEM, Cluster, Object, until

pytestmark = pytest.mark.timeout(900)

MEMORY = "mgpu.dev/memory-mib"
AGENT = (SYSTEM, "-l", "app.kubernetes.io/component=agent")


@pytest.fixture
def before(cluster: Cluster) -> Cluster:
    """With a pod `before` of 1024 MiB that runs."""
    cluster.apply(cluster.pod("before", limits={MEMORY: "1024"}))
    cluster.running("before")
    return cluster


def test_upgrade_leaves_pods_running(before: Cluster) -> None:
    node = before.node_of("before")
    pid = before.mgpud_pid(node)
    before.on_node(node, "/opt/mgpu/bin/mgpu", "upgrade")
    assert before.mgpud_pid(node) not in (0, pid)
    assert before.totals_mib("before") == [1024]
    before.apply(before.pod("after", limits={MEMORY: "1024"}, node=node))
    before.running("after")
    assert before.restarts("before") == 0


def test_deleted_agent_waits_for_the_pods_that_it_serves(before: Cluster) -> None:
    node = before.node_of("before")
    [agent] = _agents(before, node)
    before.run(SYSTEM, "delete", "pod", agent["metadata"]["name"], "--wait=false")
    until(lambda: "deletionTimestamp" in _agents(before, node)[0]["metadata"], "it is to end")
    assert before.totals_mib("before") == [1024]
    assert before.restarts("before") == 0
    before.run("delete", "pod", "before", "--wait=true")
    uid = agent["metadata"]["uid"]
    until(
        lambda: uid not in [each["metadata"]["uid"] for each in _agents(before, node) or [agent]],
        "the next agent's pod is there",
    )
    until(lambda: before.mgpud_pid(node) != 0, "the next mgpud serves")
    before.apply(before.pod("after", limits={MEMORY: "1024"}, node=node))
    before.running("after")


def _agents(cluster: Cluster, node: str) -> list[Object]:
    """The agent's pods of the node."""
    found: list[Object] = cluster.get("pod", *AGENT, f"--field-selector=spec.nodeName={node}")["items"]
    return found


def test_drained_node_has_no_container_with_a_gpu(before: Cluster) -> None:
    node = before.node_of("before")
    try:
        before.run(
            "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=120s"
        )
        assert before.mgpu(node, "ps") == []
        before.apply(before.pod("after", limits={MEMORY: "1024"}, node=node))
        until(lambda: before.phase("after") == "Pending", "it waits for the node")
    finally:
        before.run("uncordon", node)
    before.running("after")
    assert before.totals_mib("after") == [1024]
