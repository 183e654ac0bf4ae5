"""Parts of mgpu, and kubelet, killed under running pods."""

import pytest

from tests.kubernetes.cluster import Cluster, until

pytestmark = pytest.mark.timeout(900)

MEMORY = "mgpu.dev/memory-mib"


@pytest.fixture
def before(cluster: Cluster) -> Cluster:
    """With a pod `before` of 1024 MiB that runs."""
    cluster.apply(cluster.pod("before", limits={MEMORY: "1024"}))
    cluster.running("before")
    return cluster


def _all_goes_on(cluster: Cluster) -> None:
    """The pod from before is served as it was, and another one starts."""
    until(lambda: cluster.totals_mib("before") == [1024], "its calls are answered")
    until(lambda: _starts(cluster, "after"), "another pod starts beside it")
    assert cluster.totals_mib("after") == [1024]
    assert not cluster.allocates("before", 1025)
    assert cluster.restarts("before") == 0


def _starts(cluster: Cluster, name: str) -> bool:
    """Makes the pod anew where kubelet failed it for want of its device plugin, as a controller would."""
    cluster.apply(cluster.pod(name, limits={MEMORY: "1024"}, node=cluster.node_of("before")))
    until(lambda: cluster.phase(name) != "Pending", f"{name} is started")
    status = cluster.get("pod", name)["status"]
    if status["phase"] == "Failed" and status.get("reason") == "UnexpectedAdmissionError":
        cluster.run("delete", "pod", name, "--wait=true")
        return False
    return bool(status["phase"] == "Running")


def test_killed_mgpud_is_followed_by_the_next_and_pods_go_on(before: Cluster) -> None:
    node = before.node_of("before")
    pid = before.kill_mgpud(node)
    until(lambda: before.mgpud_pid(node) not in (0, pid), "the next mgpud serves")
    _all_goes_on(before)


@pytest.mark.parametrize("program", ["mgpu-node", "mgpu-scheduler", "kubelet"])
def test_killed_part_is_followed_by_the_next_and_pods_go_on(before: Cluster, program: str) -> None:
    before.kill(program, *(before.nodes() if program == "mgpu-scheduler" else [before.node_of("before")]))
    until(lambda: before.succeeds("exec", "before", "--", "true"), "kubelet serves")
    _all_goes_on(before)


def test_pods_that_lose_their_listener_are_ended_and_started_anew(before: Cluster) -> None:
    """The agent's container ends with the holder, and mgpud with it: both ends of a listener are gone."""
    node = before.node_of("before")
    pid = before.mgpud_pid(node)
    before.kill("mgpu-holder", node)
    until(lambda: before.mgpud_pid(node) not in (0, pid), "the next mgpud serves")
    until(lambda: before.restarts("before") == 1, "the container is started anew")
    before.running("before")
    until(lambda: "GPUServiceLost" in before.events("before"), "an event says why")
    assert before.totals_mib("before") == [1024]


def test_new_node_pod_leaves_running_pods_alone(before: Cluster) -> None:
    before.run("--namespace=mgpu-system", "delete", "pod", "-l", "app.kubernetes.io/component=node")
    before.run("--namespace=mgpu-system", "rollout", "status", "daemonset/mgpu-node", "--timeout=120s")
    _all_goes_on(before)
