"""People know a pod's containers by their names, not by an id of 64 digits."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from native_sched.daemon.grants import naming
from native_sched.daemon.grants.grants import Grant
from native_sched.daemon.log import Log
from native_sched.daemon.node.config import NodeConfig
from oci_specs.refusal import Refusal
from oci_specs.request import Identity
from tests.unit.arbiter_support import World

ID = "0123456789abcdef" * 4
NAME = "shop/web-0/main"


@pytest.fixture
def world() -> Iterator[World]:
    made = World(NodeConfig())
    yield made
    made.close()


@pytest.fixture
def of_pod(world: World) -> Grant:
    grant = world.granted(ID, MGPU_MEMORY_MIB="1024", NVIDIA_VISIBLE_DEVICES="0", MGPU_POLICY="fixed-share")
    grant.identity = Identity(pod="web-0", namespace="shop", container="main")
    return grant


def test_refusals_name_the_pod(world: World, of_pod: Grant) -> None:
    of_pod.state = "draining"
    with pytest.raises(Refusal) as refused:
        world.ask("set", container=NAME, core_percent=10)
    assert f"container {NAME} has ended" in refused.value.line()
    of_pod.state = "bound"
    with pytest.raises(Refusal) as refused:
        world.granted(
            "other", MGPU_MEMORY_MIB="512", NVIDIA_VISIBLE_DEVICES="0", MGPU_POLICY="native-burst-share"
        )
    assert f'set by "{NAME}"' in refused.value.line()
    assert ID not in refused.value.line()


def test_container_is_found_by_its_name(world: World, of_pod: Grant) -> None:
    world.granted("beside", MGPU_MEMORY_MIB="512").identity = Identity(
        pod="web-0", namespace="shop", container="side"
    )
    assert naming.find(list(world.grants), NAME) is of_pod


def test_container_of_no_pod_is_its_id(world: World) -> None:
    assert world.granted("job").name == "job"


def test_log_lines_name_the_pod(world: World, of_pod: Grant, tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as file:
        log = Log(file.fileno())
        log.whose = world.grants.whose
        log.error("killed-hidden", container=ID)
        log.error("killed-hidden", container="unknown")
        log.info("refused", container=ID, pod="told", namespace="", name="x")
    first, second, third = (tmp_path / "log").read_text().splitlines()
    assert first.endswith(f"container={ID} pod=web-0 namespace=shop name=main")
    assert second.endswith("container=unknown")
    assert 'pod=told namespace="" name=x' in third
