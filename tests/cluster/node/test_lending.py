"""A node that lends memory: its offer while online takes and gives back, and its words to pods' owners."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.node import published
from cluster.node.lent import STEP_LEAST_MIB
from oci_specs.refusal import Refusal
from tests.cluster.node_process import World, running
from tests.support import arbiter
from tests.support.arbiter import Arbiter
from tests.support.lasting import shared_mgpu
from tests.support.lending import KEEPER, LENDS, OFFLINE, ONLINE, started, turn
from tests.support.programs import Programs, inside
from tests.support.waiting import until

RECLAIMABLE = "mgpu.dev/reclaimable-memory-mib"
EVENTS = "/apis/events.k8s.io/v1/namespaces/shop/events"
CARD_MIB = 16160
TAKEN_MIB = CARD_MIB - 240


mgpu = shared_mgpu("v100-16:1", node_config=LENDS)


@pytest.fixture
def world(mgpu: Arbiter, tmp_path: Path) -> Iterator[World]:
    with running(mgpu, tmp_path) as made:
        for name in ("batch-0", "web-0"):
            made.api.put("/api/v1/namespaces/shop/pods", {"metadata": {"name": name, "namespace": "shop"}})
        yield made
    arbiter.until_empty(mgpu)


def of_pod(name: str, annotations: dict[str, str]) -> dict[str, str]:
    cri = "io.kubernetes.cri"
    return {
        **annotations,
        f"{cri}.sandbox-name": name,
        f"{cri}.sandbox-namespace": "shop",
        f"{cri}.container-name": "main",
    }


def offered(world: World) -> int:
    return int(world.node()["status"]["capacity"].get(RECLAIMABLE, "0"))


def refusals(world: World) -> list[dict[str, Any]]:
    return [each for each in world.api.all(EVENTS) if each["reason"] == "GPURefused"]


def test_node_offers_what_online_does_not_use(world: World, built: Programs) -> None:
    until(lambda: offered(world) == CARD_MIB, "no container uses anything")
    with started(world.mgpu, built, of_pod("web-0", ONLINE), inside("taker"), str(TAKEN_MIB)) as online:
        assert online.program.line() == "up"
        turn(online)
        until(lambda: offered(world) < STEP_LEAST_MIB, "online uses it", timeout_s=30)
        for _ in range(3):
            turn(online)
        # At first, and once for all that moved.
        assert sum(each[0] == "PATCH" for each in world.api.requests) <= 2
    assert "mgpu.dev/memory-mib" in world.node()["status"]["capacity"]


def test_owner_of_a_pod_hears_that_its_memory_gave_way_and_is_back(world: World, built: Programs) -> None:
    offline = of_pod("batch-0", OFFLINE)
    online = of_pod("web-0", ONLINE)
    with (
        started(world.mgpu, built, offline, *KEEPER) as keeper,
        started(world.mgpu, built, online, inside("taker"), str(TAKEN_MIB)) as taker,
    ):
        assert (keeper.program.line(), taker.program.line()) == ("up", "up")
        turn(taker)
        keeper.until("evicted")
        turn(taker)
        keeper.until("running")
        until(lambda: len(world.api.all(EVENTS)) >= 2, "both are told", timeout_s=20)
        until(lambda: offered(world) >= 640, "what was granted stays offered", timeout_s=20)
    events = sorted(world.api.all(EVENTS), key=lambda each: str(each["eventTime"]))
    assert [(each["type"], each["reason"], each["regarding"]["name"]) for each in events] == [
        ("Warning", "GPUMemoryEvicted", "batch-0"),
        ("Normal", "GPUMemoryRestored", "batch-0"),
    ]
    mib = events[0]["note"].split()[1]
    assert events[0]["note"] == (f"main: {mib} MiB of GPU memory were moved to host memory, with their data")
    assert events[1]["note"] == f"main: its {mib} MiB of GPU memory are back, with their data"


def test_owner_of_a_pod_that_came_too_late_hears_what_to_do(world: World, built: Programs) -> None:
    """Online took the memory after the scheduler had placed the pod and before the pod's start."""
    uuid = world.mgpu.listing()["cards"][0]["uuid"]
    placed = {
        RECLAIMABLE: "8192",
        "mgpu.dev/placement": json.dumps({"main": [uuid]}),
        "mgpu.dev/memory-64mib": "128",
    }
    with started(world.mgpu, built, of_pod("web-0", ONLINE), inside("taker"), str(TAKEN_MIB)) as online:
        assert online.program.line() == "up"
        turn(online)
        with pytest.raises(Refusal) as refused:
            world.mgpu.ask(
                "admit",
                container_id="late",
                bundle="/b",
                rootfs="/r",
                annotations=of_pod("batch-0", placed),
                env={},
                reach=[],
                seccomp_listener=None,
            )
        until(lambda: bool(refusals(world)), "the event is posted", timeout_s=20)
    event = max(refusals(world), key=lambda each: str(each["eventTime"]))
    assert event["regarding"]["name"] == "batch-0"
    assert re.fullmatch(
        rf"main: mgpu.dev/placement names {uuid}, and there 8192 MiB asked, but the most that is free is "
        r"\d+ MiB, on GPU 0; delete the pod, so that it is placed anew",
        event["note"],
    )
    assert refused.value.line() == event["note"].replace("main:", "mgpu:", 1)


def test_resource_goes_when_nothing_is_lent(tmp_path: Path) -> None:
    with arbiter.running("v100-16:1") as plain, running(plain, tmp_path) as world:
        until(lambda: published.SERVING in world.node()["metadata"]["labels"], "the label is there")
        until(lambda: len(world.node()["status"]["capacity"]) > 1, "capacity is there")
        assert RECLAIMABLE not in world.node()["status"]["capacity"]
