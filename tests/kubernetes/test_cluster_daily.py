"""What users do every day, on GPUs that are full: the examples of cluster/manifests, in the suite's image."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import yaml

from tests.kubernetes.cluster import Cluster, Object, until
from tests.support.places import REPOSITORY

pytestmark = pytest.mark.timeout(900)

MEMORY = "mgpu.dev/memory-mib"
FOLDER = REPOSITORY / "cluster" / "manifests"


def _example(cluster: Cluster, name: str, command: Sequence[str] = ("sleep", "infinity")) -> list[Object]:
    objects: list[Object] = list(yaml.safe_load_all((FOLDER / name).read_text()))
    for spec in (spec for each in objects for spec in _pod_specs(each)):
        spec["terminationGracePeriodSeconds"] = 1
        for container in [*spec.get("initContainers", []), *spec["containers"]]:
            container |= {"image": cluster.image, "imagePullPolicy": "IfNotPresent"}
            once = container in spec.get("initContainers", []) and "restartPolicy" not in container
            container["command"] = ["true"] if once else list(command)
    return objects


def _pod_specs(value: Any) -> Iterator[Object]:
    if isinstance(value, dict):
        if "containers" in value:
            yield value
        for each in value.values():
            yield from _pod_specs(each)


@pytest.fixture
def full(cluster: Cluster) -> Cluster:
    """No GPU has room for any of the examples, but for one GPU of the smallest size."""
    cards = cluster.cards()
    least = min(card["memory_mib"] for card in cards)
    spare = next(card["node"] for card in cards if card["memory_mib"] == least)
    pods = [
        cluster.pod(f"fill-{number}", limits={MEMORY: str(card["memory_mib"] - 256)}, node=card["node"])
        for number, card in enumerate(cards)
    ]
    pods.remove(next(pod for pod, card in zip(pods, cards, strict=True) if card["node"] == spare))
    cluster.apply(*pods)
    cluster.running(*(pod["metadata"]["name"] for pod in pods))
    return cluster


def _of_app(cluster: Cluster, app: str) -> list[Object]:
    found: list[Object] = cluster.get("pods", "-l", f"app={app}")["items"]
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def _phases(cluster: Cluster, app: str) -> list[str]:
    return [pod["status"]["phase"] for pod in _of_app(cluster, app)]


def test_one_replica_on_a_full_gpu_is_rolled(full: Cluster) -> None:
    full.apply(*_example(full, "daily/service.yaml"))
    full.run("rollout", "status", "deployment/service", "--timeout=120s")
    full.run("set", "env", "deployment/service", "A=1")
    full.run("rollout", "status", "deployment/service", "--timeout=120s")
    [pod] = _of_app(full, "service")
    assert full.totals_mib(pod["metadata"]["name"]) == [12000]


def test_stateful_set_is_rolled_on_a_full_gpu(full: Cluster) -> None:
    full.apply(*_example(full, "daily/stateful.yaml"))
    full.run("rollout", "status", "statefulset/store", "--timeout=120s")
    change = {"spec": {"template": {"metadata": {"annotations": {"tried": "1"}}}}}
    full.run("patch", "statefulset", "store", f"--patch={json.dumps(change)}")
    full.run("rollout", "status", "statefulset/store", "--timeout=180s")
    for pod in _of_app(full, "store"):
        assert full.totals_mib(pod["metadata"]["name"]) == [8000]
        assert pod["metadata"]["annotations"]["tried"] == "1"


def test_job_waits_for_its_turn_and_counts_no_failure(full: Cluster) -> None:
    full.apply(*_example(full, "daily/jobs.yaml", ["sleep", "1"]))
    until(lambda: full.get("job", "batch")["status"].get("succeeded") == 12, "all end", timeout_s=400)
    assert not full.get("job", "batch")["status"].get("failed")


def test_cron_jobs_run_gets_its_part(full: Cluster) -> None:
    full.apply(*_example(full, "daily/cron.yaml"))
    full.run("create", "job", "tonight", "--from=cronjob/nightly")
    until(lambda: len(full.get("pods", "-l", "job-name=tonight")["items"]) == 1, "its pod is made")
    [pod] = full.get("pods", "-l", "job-name=tonight")["items"]
    full.running(pod["metadata"]["name"])
    assert full.totals_mib(pod["metadata"]["name"]) == [4000]


def test_init_container_uses_mains_part_and_a_debug_container_has_none(full: Cluster) -> None:
    full.apply(*_example(full, "daily/init-and-sidecar.yaml"))
    name = "init-and-sidecar"
    full.running(name)
    assert full.totals_mib(name, "main") == [8000]
    assert full.totals_mib(name, "watch") == [1000]
    debug = ("--image", full.image, "--image-pull-policy=IfNotPresent", "--profile=baseline", "-c", "debug")
    full.run("debug", name, *debug, "--", "sleep", "infinity")
    until(lambda: "running" in _ephemeral(full, name), "the debug container runs")
    assert (
        full.run("exec", name, "-c", "debug", "--", "sh", "-c", "ls /dev | grep -c nvidia || true") == "0\n"
    )
    assert sorted(full.served(name)) == [f"{name}/main", f"{name}/watch"]


def _ephemeral(cluster: Cluster, pod: str) -> Object:
    statuses = cluster.get("pod", pod)["status"].get("ephemeralContainerStatuses", [])
    state: Object = statuses[0]["state"] if statuses else {}
    return state


def test_evicted_pod_is_placed_anew(full: Cluster) -> None:
    """As a descheduler does, and `kubectl drain`."""
    full.apply(*_example(full, "daily/service.yaml"))
    full.run("rollout", "status", "deployment/service", "--timeout=120s")
    [before] = _of_app(full, "service")
    name = before["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    path = f"/api/v1/namespaces/{full.namespace}/pods/{name}/eviction"
    full.run("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))
    until(lambda: name not in [pod["metadata"]["name"] for pod in _of_app(full, "service")], "it is evicted")
    full.run("rollout", "status", "deployment/service", "--timeout=120s")
    [after] = _of_app(full, "service")
    assert full.totals_mib(after["metadata"]["name"]) == [12000]


def test_spare_node_gives_way_and_then_waits_for_the_sum_of_a_node(cluster: Cluster) -> None:
    """An autoscaler then sees a pod for which no node has the sum."""
    objects = _example(cluster, "beside/spare-node.yaml")
    cards = cluster.cards()
    node = cards[0]["node"]
    sizes = [card["memory_mib"] for card in cards if card["node"] == node]
    importance, deployment = objects
    importance["metadata"]["name"] = cluster.namespace
    spec = deployment["spec"]["template"]["spec"]
    spec["priorityClassName"] = cluster.namespace
    spec["containers"][0]["resources"] = {
        "limits": {"mgpu.dev/gpus": str(len(sizes)), MEMORY: str(sum(sizes))}
    }
    cluster.apply(*objects)
    try:
        with cluster.alone(node):
            until(lambda: _phases(cluster, "spare-node") == ["Running"], "the spare pod has the node")
            cluster.apply(cluster.pod("web", limits={MEMORY: str(max(sizes) * 8 // 10)}))
            cluster.running("web")
            until(lambda: _phases(cluster, "spare-node") == ["Pending"], "the spare pod waits")
            [spare] = _of_app(cluster, "spare-node")
            why = cluster.unschedulable
            until(lambda: "Insufficient mgpu.dev/" in why(spare["metadata"]["name"]), "for a node's sum")
    finally:
        cluster.run("delete", "priorityclass", cluster.namespace)
