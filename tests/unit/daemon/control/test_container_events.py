"""`watch` and `inventory`: what mgpud tells the node process of a cluster."""

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from native_sched.daemon.control.container_events import KEPT, ContainerEvents
from native_sched.daemon.control.server import Peer
from native_sched.daemon.log import Log
from native_sched.daemon.metrics.refused import Refusals
from oci_specs import schemas
from oci_specs.refusal import Refusal
from oci_specs.request import Identity
from tests.unit.arbiter_support import CARDS, World

POD = {
    "io.kubernetes.cri.sandbox-name": "web-0",
    "io.kubernetes.cri.sandbox-namespace": "shop",
    "io.kubernetes.cri.container-name": "main",
}


@pytest.fixture
def log() -> Iterator[Log]:
    with open(os.devnull, "w") as null:
        yield Log(null.fileno())


def told(events: ContainerEvents, since: int = 0) -> list[tuple[str, str, str, str]]:
    reply = events.since(since)
    schemas.validate("control#watch-reply", {"version": 1, "ok": True, **reply})
    return [(each["kind"], each["namespace"], each["pod"], each["text"]) for each in reply["events"]]


def listening(world: World, log: Log, first: int = 1) -> ContainerEvents:
    events = ContainerEvents(first, world.grants)
    log.heard = events.note
    return events


def in_pod(world: World, **env: str) -> str:
    grant = world.granted("c1", **env)
    grant.identity = Identity(pod="web-0", namespace="shop", container="main")
    return grant.container_id


def test_refusal_is_its_owners_to_hear(world: World, log: Log) -> None:
    events = listening(world, log)

    def admit(_message: Mapping[str, Any], _peer: Peer) -> dict[str, Any]:
        raise Refusal("memory-full", "no GPU has 4096 MiB left", "ask for less")

    for of_pod in (POD, {}):
        with pytest.raises(Refusal):
            Refusals(log).counted(admit)({"container_id": "c", "annotations": of_pod}, Peer(1, 0))
    text = "no GPU has 4096 MiB left; ask for less"
    assert told(events) == [("GPURefused", "shop", "web-0", text), ("GPURefused", "", "", text)]
    assert [each["container"] for each in events.since(0)["events"]] == ["main", "c"]


@pytest.mark.parametrize(
    ("event", "fields", "kind"),
    [
        ("killed-unaccounted", {"bytes": 4096}, "GPUMemoryOverCap"),
        ("killed-hidden", {}, "GPUWorkHidden"),
        ("killed-unsuspendable", {"why": "0x5f"}, "GPUWorkNotSuspended"),
    ],
)
def test_ended_container_is_told_of(
    world: World, log: Log, event: str, fields: dict[str, object], kind: str
) -> None:
    events = listening(world, log)
    log.error(event, container=in_pod(world), **fields)
    log.error(event, container="of no pod", **fields)
    assert [each[:3] for each in told(events)] == [(kind, "shop", "web-0"), (kind, "", "")]


def test_lost_card_is_told_to_the_pods_that_are_on_it(world: World, log: Log) -> None:
    events = listening(world, log)
    in_pod(world, NVIDIA_VISIBLE_DEVICES="1", MGPU_MEMORY_MIB="1024")
    for card in (0, 1):
        log.error("card-lost", card=card, containers=1)
    assert [each[0] for each in told(events)] == ["GPULost"]


def test_operators_policy_is_told_to_the_pods_that_run_under_it(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    in_pod(world, NVIDIA_VISIBLE_DEVICES="0", MGPU_MEMORY_MIB="1024")
    world.ask("policy", cards=[0], policy="native-burst-share")
    assert "event=policy-changed container=c1 policy=native-burst-share" in capfd.readouterr().err


def test_numbers_rise_over_restarts_and_the_oldest_are_forgotten(world: World, log: Log) -> None:
    events = listening(world, log)
    in_pod(world)
    for _ in range(KEPT + 10):
        events.note("killed-hidden", {"container": "c1"})
    assert len(told(events)) == KEPT
    went_on = events.since(0)["next"]
    assert told(events, went_on) == []
    after = listening(world, log, first=went_on + 10)
    after.note("killed-hidden", {"container": "c1"})
    assert len(told(after, went_on)) == 1


def test_number_of_the_future_gets_all(world: World, log: Log) -> None:
    """The clock was set back between two mgpuds."""
    events = listening(world, log)
    in_pod(world)
    events.note("killed-hidden", {"container": "c1"})
    assert len(told(events, 1 << 50)) == 1


def test_inventory_is_cards_and_rules_without_tenants(world: World) -> None:
    world.granted("a", NVIDIA_VISIBLE_DEVICES="0", MGPU_MEMORY_MIB="1024", MGPU_POLICY="be")
    world.ask("policy", cards=[1], policy="guaranteed-burst-share")
    found = world.ask("inventory")
    assert [card["uuid"] for card in found["cards"]] == [card.uuid for card in CARDS]
    # The first container's policy is gone with it; the operator's stays.
    assert [card["policy"] for card in found["cards"]] == [None, "guaranteed-burst-share"]
    assert found["rules"]["max_containers_per_card"] == 16


def test_inventory_has_the_cards_that_mgpud_chose_for_a_pod(world: World) -> None:
    """What a scheduler or a claim chose is known to the cluster already."""
    asking = {**POD, "mgpu.dev/memory-mib": "1024"}
    placement = json.dumps({"main": [CARDS[1].uuid]})
    pods = {"web-0": asking, "web-1": {**asking, "mgpu.dev/placement": placement}}
    for number, (pod, asked) in enumerate(pods.items()):
        world.ask(
            "admit",
            container_id=f"c{number}",
            bundle="/b",
            rootfs="/r",
            annotations={**asked, "io.kubernetes.cri.sandbox-name": pod},
            env={},
            reach=[],
            seccomp_listener=None,
        )
    world.granted("not-of-a-pod")
    assert world.ask("inventory")["chosen"] == {"shop/web-0": {"main": [CARDS[0].uuid]}}


def test_second_container_of_a_pod_is_told_of_its_own_share(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    """An annotation of the pod reaches its init containers, sidecars and debug containers too."""
    asking = {**POD, "mgpu.dev/memory-mib": "2048"}
    # Its owner wrote a limit for each container of a pod that was placed.
    cards = json.dumps({"main": [CARDS[0].uuid], "side": [CARDS[0].uuid]})
    placed = {**asking, "io.kubernetes.cri.sandbox-name": "placed", "mgpu.dev/placement": cards}
    for container, name, said in (
        ("c1", "main", asking),
        ("c2", "debugger-x", asking),
        ("c3", "main", asking),
        ("c4", "main", placed),
        ("c5", "side", placed),
    ):
        world.ask(
            "admit",
            container_id=container,
            bundle="/b",
            rootfs="/r",
            annotations={**said, "io.kubernetes.cri.container-name": name},
            env={},
            reach=[],
            seccomp_listener=None,
        )
    lines = [line for line in capfd.readouterr().err.splitlines() if "share-beside" in line]
    assert [line.partition("share-beside ")[2].rstrip() for line in lines] == [
        "container=c2 memory_mib=2048 beside=main",
        "container=c3 memory_mib=2048 beside=debugger-x",
    ]


def test_container_that_lost_its_listener_is_told_of(world: World, log: Log) -> None:
    events = listening(world, log)
    log.error("lost-listener", container=in_pod(world), what="ended")
    log.info("share-beside", container="c1", memory_mib=1024, beside="main")
    assert [each[0] for each in told(events)] == ["GPUServiceLost", "GPUShareOfItsOwn"]
