"""`mgpu-move` on a cluster: a node from mgpu to HAMi, whose device plugin is played, and over again."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.cluster import SYSTEM, Cluster, Object, until
from tests.support.commands import run

pytestmark = pytest.mark.timeout(1200)

GPU, MEMORY = "nvidia.com/gpu", "mgpu.dev/memory-mib"
PLUGIN = Path(__file__).with_name("hami_plugin.py")
STEP_S = "300"


def _move(*words: str) -> str:
    return run(sys.executable, "-m", "cluster.move.main", *words, timeout_s=900)


def _plugin(cluster: Cluster) -> Object:
    """A DaemonSet of the nodes that are HAMi's."""
    node = cluster.get("daemonset/mgpu-node", SYSTEM)
    image = node["spec"]["template"]["spec"]["containers"][0]["image"]
    labels = {"app": "hami-device-plugin"}
    mounts = [{"name": "plugins", "mountPath": "/var/lib/kubelet/device-plugins"}]
    container = {
        "name": "plugin",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/opt/mgpu/bin/python3", "-c", PLUGIN.read_text()],
        "env": [{"name": "RESOURCE", "value": GPU}],
        "volumeMounts": mounts,
    }
    spec = {
        "nodeSelector": {"gpu": "on"},
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        "volumes": [{"name": "plugins", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}],
    }
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "hami-device-plugin"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


def _deployment(cluster: Cluster, name: str, limits: dict[str, str]) -> Object:
    labels = {"app": name}
    pod = cluster.pod("any", limits=limits, labels=labels)
    template = {"metadata": {"labels": labels}, "spec": pod["spec"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template},
    }


def _nodes_of(cluster: Cluster, app: str) -> list[str]:
    """Where its pods run that are not ending."""
    return [
        pod["spec"]["nodeName"]
        for pod in cluster.get("pods", "-l", f"app={app}")["items"]
        if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
    ]


@pytest.fixture
def moved(cluster: Cluster) -> Iterator[tuple[Cluster, str]]:
    """With a node that moves, and comes back whatever happens."""
    nodes = cluster.nodes()
    if len(nodes) < 2:
        pytest.skip("pods of a node that moves need another one")
    if any(GPU in node["status"]["capacity"] for node in cluster.get("nodes")["items"]):
        pytest.skip("the cluster was installed with hami: true")
    cluster.apply(_plugin(cluster))
    try:
        yield cluster, nodes[-1]
    finally:
        cluster.run("label", "node", nodes[-1], "gpu-", "mgpu.dev/node=true", "--overwrite")
        cluster.run("uncordon", nodes[-1])
        serving = ("get", "node", nodes[-1], "-o", "jsonpath={.metadata.labels.mgpu\\.dev/serving}")
        until(lambda: cluster.run(*serving) == "true", "mgpu serves there again")


def test_node_moves_to_hami_and_back_over(moved: tuple[Cluster, str]) -> None:
    cluster, node = moved
    cluster.apply(_deployment(cluster, "ours", {MEMORY: "2000"}))
    cluster.apply(_deployment(cluster, "theirs", {GPU: "1"}))
    until(lambda: len(_nodes_of(cluster, "ours")) == 2, "mgpu's pods run")
    assert f"node {node}: mgpu's" in _move("plan")
    said = _move("back", node, "--wait-seconds", STEP_S)
    assert f"node {node} is moved" in said
    assert cluster.on_node(node, "find", "/opt", "-maxdepth", "1", "-name", "mgpu") == ""
    until(lambda: len(_nodes_of(cluster, "ours")) == 2, "mgpu's pods run elsewhere")
    assert node not in _nodes_of(cluster, "ours")
    until(lambda: _nodes_of(cluster, "theirs") == [node, node], "HAMi's pods run")
    assert f"node {node}: HAMi's, 2 pods with GPUs" in _move("plan")
    _move("over", node, "--wait-seconds", STEP_S)
    assert _nodes_of(cluster, "theirs") == []
    cluster.apply(cluster.pod("again", limits={MEMORY: "1000"}, node=node))
    cluster.running("again")
    assert cluster.totals_mib("again") == [1000]
