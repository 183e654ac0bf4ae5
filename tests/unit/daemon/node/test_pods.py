"""What a cluster makes of the published manifests."""

from pathlib import Path

import pytest
import yaml

from native_sched.daemon.node.config import NodeConfig
from oci_specs import parse
from tests.cri.pods import ContainerSpec, PodSpec, pods
from tests.support.places import REPOSITORY

MANIFESTS = REPOSITORY / "tests" / "cri" / "manifests"


def published(name: str) -> list[PodSpec]:
    return pods(yaml.safe_load(Path(MANIFESTS, f"{name}.yaml").read_text()))


def test_deployment_becomes_its_pods() -> None:
    first, second = published("mgpu-offline")
    assert (first.name, second.name) == ("mgpu-deployment-offline-0", "mgpu-deployment-offline-1")
    assert first.labels == {"app": "mgpu-deployment"}
    assert first.annotations == {
        "katalyst.kubewharf.io/qos_level": "reclaimed_cores",
        "vke.volcengine.com/mgpu-compute-policy": "guaranteed-burst-share",
    }
    [container] = first.containers
    assert container == ContainerSpec(
        name="mgpu-container-offline",
        image="nginx:1.14.2",
        annotations={
            "vke.volcengine.com/mgpu-memory": "4096",
            "vke.volcengine.com/reclaimed-mgpu-core": "30",
        },
    )
    assert second.containers == first.containers


def test_job_becomes_its_pods() -> None:
    [pod] = published("ack-multigpu")
    [container] = pod.containers
    assert pod.labels["aliyun.com/gpu-count"] == "2"
    assert container.annotations == {"aliyun.com/gpu-mem": "8", "aliyun.com/gpu-count": "2"}
    assert container.command[0] == "python"
    assert container.working_dir == "/root"


@pytest.mark.parametrize(
    ("name", "qos", "memory", "core", "count"),
    [
        ("mgpu-offline", "offline", 4096, 30, 1),
        ("mgpu-online", "online", 4096, 30, 1),
        ("ack-multigpu", "online", None, None, 2),  # in units
    ],
)
def test_published_annotations_are_the_request(
    name: str, qos: str, memory: int | None, core: int | None, count: int
) -> None:
    pod = published(name)[0]
    told = {**pod.annotations, **pod.containers[0].annotations}
    request = parse.request(told, {}, NodeConfig())
    assert request is not None
    assert request.memory is not None
    assert (request.qos, request.memory.mib, request.core_percent, request.count) == (
        qos,
        memory,
        core,
        count,
    )


def test_container_that_asks_for_nothing_is_told_nothing() -> None:
    workload = yaml.safe_load(Path(MANIFESTS, "ack-multigpu.yaml").read_text())
    workload["spec"]["template"]["spec"]["containers"].append({"name": "side", "image": "x"})
    [pod] = pods(workload)
    assert [bool(one.annotations) for one in pod.containers] == [True, False]


def test_daemonset_is_refused() -> None:
    with pytest.raises(ValueError, match="DaemonSet"):
        pods({"kind": "DaemonSet"})
