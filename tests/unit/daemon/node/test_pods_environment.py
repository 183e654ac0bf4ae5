"""What a pod's container asks by its environment counts for nothing, unless the node's operator says so."""

from collections.abc import Iterator

import pytest

from native_sched.daemon.node.config import NodeConfig
from oci_specs.refusal import Refusal
from tests.unit.arbiter_support import World

CONTAINERD = {
    "io.kubernetes.cri.container-type": "container",
    "io.kubernetes.cri.sandbox-name": "web-0",
    "io.kubernetes.cri.sandbox-namespace": "team-a",
    "io.kubernetes.cri.container-name": "main",
}
CRIO = {
    "io.kubernetes.pod.name": "web-0",
    "io.kubernetes.pod.namespace": "team-a",
    "io.kubernetes.container.name": "main",
}
# As podman has it for a container of a pod of its own.
PODMAN = {"io.kubernetes.cri-o.ContainerType": "container", "io.kubernetes.cri-o.SandboxID": "ab"}
PLACED = {"mgpu.dev/placement": '{"main": ["GPU-0"]}'}
LIMIT = {"mgpu.dev/memory-64mib": "4"}


# What no admission sees, or no scheduler places: an engine tells mgpud of them as of any other container.
STRANGE = {
    "static pod": {
        **CRIO,
        "io.kubernetes.pod.name": "web-node-1",
        "kubernetes.io/config.source": "file",
        "kubernetes.io/config.hash": "0a1b",
    },
    "init container": {**CONTAINERD, "io.kubernetes.cri.container-name": "before"},
    "ephemeral container": {**CONTAINERD, "io.kubernetes.cri.container-name": "debugger-x7k2p"},
    "pod with nodeName": {**CONTAINERD, "io.kubernetes.cri.sandbox-name": "by-hand"},
}


@pytest.fixture
def open_world() -> Iterator[World]:
    made = World(NodeConfig(environment_in_pods=True))
    yield made
    made.close()


@pytest.mark.parametrize("pod", [CONTAINERD, CRIO])
@pytest.mark.parametrize("variable", ["MGPU_GPUS", "MGPU_MEMORY_MIB", "MGPU_CORE"])
def test_pod_does_not_ask_by_a_variable(world: World, pod: dict[str, str], variable: str) -> None:
    with pytest.raises(Refusal) as refused:
        world.admit(annotations=pod, env={variable: "1024"})
    assert refused.value.code == "environment-in-pod"
    assert refused.value.message.startswith(f"{variable} is a variable")
    assert world.engine.tenants == {}


@pytest.mark.parametrize("kind", STRANGE)
def test_no_kind_of_pod_or_container_asks_by_a_variable(world: World, kind: str) -> None:
    with pytest.raises(Refusal) as refused:
        world.admit(annotations=STRANGE[kind], MGPU_GPUS="1")
    assert refused.value.code == "environment-in-pod"
    assert world.admit(annotations={**STRANGE[kind], **PLACED}, MGPU_MEMORY_MIB="1024") is None
    assert world.admit(annotations=STRANGE[kind], NVIDIA_VISIBLE_DEVICES="all") is None
    assert world.engine.tenants == {}


@pytest.mark.parametrize("kind", STRANGE)
def test_node_may_let_variables_of_every_kind_count(open_world: World, kind: str) -> None:
    assert open_world.admit(annotations=STRANGE[kind], MGPU_MEMORY_MIB="1024") is not None


def test_misspelt_variable_of_a_pod_is_told_too(world: World) -> None:
    with pytest.raises(Refusal, match="MGPU_MEMROY"):
        world.admit(annotations=CONTAINERD, MGPU_MEMROY="1024")


def test_pod_gets_what_its_limit_says_whatever_its_variables_say(world: World) -> None:
    grant = world.admit(
        annotations={**CONTAINERD, **PLACED, **LIMIT},
        MGPU_CORE="100",
        MGPU_GPUS="2",
        MGPU_QOS="offline",
        MGPU_POLICY="native-burst-share",
    )
    assert grant is not None
    [card] = grant.cards
    assert (card.memory_mib, card.core_percent) == (256, None)
    assert (grant.qos, grant.policy) == ("online", "fixed-share")


def test_container_beside_a_placed_one_gets_nothing_by_a_variable(world: World) -> None:
    other = {**CONTAINERD, "io.kubernetes.cri.container-name": "debug"}
    assert world.admit(annotations={**other, **PLACED}, MGPU_GPUS="1") is None


def test_pod_with_an_image_of_cuda_passes(world: World) -> None:
    assert world.admit(annotations=CONTAINERD, NVIDIA_VISIBLE_DEVICES="all") is None
    assert world.admit(annotations=CONTAINERD, NVIDIA_VISIBLE_DEVICES="GPU-0") is None
    assert world.admit(annotations=CONTAINERD, MGPU_QOS="offline") is None


def test_annotation_of_a_pod_asks_as_before(world: World) -> None:
    grant = world.admit(annotations={**CONTAINERD, "aliyun.com/gpu-mem": "4"}, NVIDIA_VISIBLE_DEVICES="1")
    assert grant is not None


def test_node_may_let_variables_of_pods_count(open_world: World) -> None:
    grant = open_world.admit(annotations=CONTAINERD, MGPU_MEMORY_MIB="1024", NVIDIA_VISIBLE_DEVICES="1")
    assert grant is not None
    assert [card.index for card in grant.cards] == [1]


@pytest.mark.parametrize("annotations", [{}, PODMAN])
def test_docker_and_podman_ask_by_variables(world: World, annotations: dict[str, str]) -> None:
    assert world.admit(annotations=annotations, MGPU_MEMORY_MIB="1024") is not None
