"""`set`: changing what a running container was granted, whole or not at all."""

from typing import Any

import pytest

from native_sched.daemon.engine_abi import TenantClass
from native_sched.daemon.node.config import NodeConfig
from oci_specs.refusal import Refusal
from tests.unit.arbiter_support import World

MIB = 1 << 20
ON_0 = {"NVIDIA_VISIBLE_DEVICES": "0"}


def line(world: World, container: str, **intent: Any) -> str:
    """The refusal of a change; nothing must have become of it."""
    before = everything(world)
    with pytest.raises(Refusal) as refused:
        world.ask("set", container=container, **intent)
    assert everything(world) == before
    return refused.value.line()


def everything(world: World) -> object:
    caps = {tenant: dict(cards) for tenant, cards in world.engine.tenants.items()}
    return world.ask("list")["containers"], caps, dict(world.engine.scheduled), dict(world.engine.policies)


def test_memory_core_and_class_at_once(world: World) -> None:
    grant = world.granted("job", MGPU_MEMORY_MIB="4096", MGPU_CORE="20", MGPU_GPUS="2")
    row = world.ask("set", container="job", memory_mib=6144, core_percent=60, **{"class": "offline"})
    assert row["container"] == world.ask("list")["containers"][0]
    assert [card["memory_mib"] for card in row["container"]["cards"]] == [3072, 3072]
    assert [card["core_percent"] for card in row["container"]["cards"]] == [30, 30]
    assert (row["container"]["class"], row["container"]["sched"]["quota_percent"]) == ("offline", 30)
    assert world.engine.tenants[grant.tenant] == {0: 3072 * MIB, 1: 3072 * MIB}
    assert world.engine.scheduled[grant.tenant] == (TenantClass.OFFLINE, 30)


def test_placement_sees_what_was_changed(world: World) -> None:
    world.granted("small", MGPU_MEMORY_MIB="1024", **ON_0)
    world.ask("set", container="small", memory_mib=16160)
    with pytest.raises(Refusal, match="the most that is free is 0 MiB"):
        world.granted("next", MGPU_MEMORY_MIB="256", **ON_0)
    world.ask("set", container="small", memory_mib=256)
    world.granted("next", MGPU_MEMORY_MIB="15904", **ON_0)


def test_room_left_by_others_is_checked_on_every_card(world: World) -> None:
    for card in "01":
        for name in ("first", "second"):
            world.granted(name + card, MGPU_MEMORY_MIB="1024", NVIDIA_VISIBLE_DEVICES=card)
    for card in "01":
        assert "ask for at most 15136 MiB, " in line(world, f"first{card}", memory_mib=15137)
        world.ask("set", container=f"first{card}", memory_mib=15136)


def test_quota_reduces_containers_without_quota(world: World) -> None:
    first = world.granted("first", MGPU_MEMORY_MIB="1024", **ON_0)
    second = world.granted("second", MGPU_MEMORY_MIB="1024", **ON_0)
    world.ask("set", container="first", core_percent=80)
    assert world.engine.scheduled[first.tenant][1] == 80
    assert world.engine.scheduled[second.tenant][1] == 20
    world.ask("set", container="first", **{"class": "offline"})
    assert world.engine.scheduled[second.tenant][1] == 100


def test_whole_cards_may_change_class_only(world: World) -> None:
    grant = world.granted("whole", MGPU_GPUS="1")
    said = (
        "mgpu: container whole was given whole GPUs, which nobody else may use; "
        "change its class only, or create it anew with memory or core"
    )
    assert line(world, "whole", core_percent=50) == said
    assert line(world, "whole", memory_mib=1024) == said
    world.ask("set", container="whole", **{"class": "offline"})
    assert world.engine.scheduled[grant.tenant] == (TenantClass.OFFLINE, 100)
    world.granted("job", MGPU_MEMORY_MIB="1024")
    assert (world.engine.alone, world.engine.video) == ({grant.tenant}, set())


def test_video_is_for_those_whose_driver_capabilities_have_it(world: World) -> None:
    grant = world.granted("whole", MGPU_GPUS="1", NVIDIA_DRIVER_CAPABILITIES="video,utility")
    assert grant.capabilities == ("utility", "video")
    world.granted("computes", MGPU_MEMORY_MIB="1024")
    share = world.granted("share", MGPU_MEMORY_MIB="1024", NVIDIA_DRIVER_CAPABILITIES="all")
    assert world.engine.video == {grant.tenant, share.tenant}


@pytest.mark.parametrize("intent", [{"memory_mib": 512, "core_percent": 40}, {"memory_mib": 512}])
def test_memory_below_what_is_held(world: World, intent: dict[str, int]) -> None:
    grant = world.granted("job", MGPU_MEMORY_MIB="1024")
    world.engine.bytes_on_card[grant.tenant, 0] = 512 * MIB + 1
    assert line(world, "job", **intent) == (
        "mgpu: 512 MiB asked, but container job holds 513 MiB on GPU 0; "
        "give it 513 MiB or more, or have it free memory first"
    )
    world.ask("set", container="job", memory_mib=513)


def test_memory_that_is_taken_while_the_cap_shrinks(world: World) -> None:
    """Between the check and the new cap the container may have allocated: the old cap is put back."""
    grant = world.granted("job", MGPU_MEMORY_MIB="4096", MGPU_GPUS="2")

    def meanwhile(tenant: int, card: int) -> None:
        if card == 1:
            world.engine.bytes_on_card[tenant, 1] = 1900 * MIB

    world.engine.after_grant = meanwhile
    with pytest.raises(Refusal, match="holds 1900 MiB on GPU 1; give it 1900 MiB a GPU or more"):
        world.ask("set", container="job", memory_mib=2048, **{"class": "offline"})
    assert world.engine.tenants[grant.tenant] == {0: 2048 * MIB, 1: 2048 * MIB}
    assert world.engine.scheduled[grant.tenant][0] == TenantClass.ONLINE
    assert [card.memory_mib for card in grant.cards] == [2048, 2048]


def test_change_refused_by_the_engine_library_changes_nothing(world: World) -> None:
    world.granted("job", MGPU_MEMORY_MIB="1024")
    world.engine.refuses.add("schedule")
    said = line(world, "job", memory_mib=2048, core_percent=10)
    assert said.startswith(
        'mgpu: the engine does not take the change of container "job" (Invalid argument); '
    )


@pytest.mark.parametrize(
    ("intent", "said"),
    [
        (
            {"memory_mib": 4097},
            "memory-mib 4097 does not divide evenly over 2 GPUs; "
            "allowed: a total of which each GPU gets an equal whole part",
        ),
        (
            {"core_percent": 41},
            "core 41 does not divide evenly over 2 GPUs; "
            "allowed: a total of which each GPU gets an equal whole part",
        ),
        ({"core_percent": 202}, "core 202 is more than 2 GPUs; allowed: 200 at most"),
        (
            {"memory_mib": 2046},
            "1023 MiB a GPU asked, and the least is 1024 MiB; allowed: 2048 MiB or more in total",
        ),
        (
            {"memory_mib": 32000},
            "16000 MiB asked, but of the 16160 MiB of GPU 0 other containers were granted 2048 MiB; "
            "ask for at most 14112 MiB a GPU, or wait until a container ends",
        ),
        (
            {"core_percent": 160},
            "core 80 asked, but other online containers leave 50 percent of GPU 0; "
            "ask for at most core 50 a GPU, give another one less, or wait until one ends",
        ),
        (
            {"memory_mib": 4096, "class": "offline"},
            "a part of what offline containers leave asked, but other offline containers leave 0 percent of GPU 0; "
            "give another one less, or wait until one ends",
        ),
    ],
)
def test_change_that_does_not_fit_is_refused(world: World, intent: dict[str, Any], said: str) -> None:
    world.granted("pair", MGPU_MEMORY_MIB="4096", MGPU_GPUS="2")
    world.granted("on", MGPU_MEMORY_MIB="1024", MGPU_CORE="50", **ON_0)
    world.granted("off", MGPU_MEMORY_MIB="1024", MGPU_CORE="100", MGPU_QOS="offline", **ON_0)
    assert line(world, "pair", **intent) == f"mgpu: {said}"


def test_refusal_for_a_single_card_names_no_others(world: World) -> None:
    world.granted("job", MGPU_MEMORY_MIB="1024")
    assert line(world, "job", core_percent=101) == "mgpu: core 101 is more than 1 GPU; allowed: 100 at most"
    assert "allowed: 256 MiB or more in total" in line(world, "job", memory_mib=255)


def test_ended_or_cardless_container_cannot_be_changed(world: World) -> None:
    grant = world.granted("ended")
    world.engine.busy.add(grant.tenant)
    world.life.release(grant)
    assert line(world, "ended", core_percent=10) == (
        "mgpu: container ended has ended, and its processes still hold what it was given; "
        "wait until it is gone from mgpu ps"
    )
    privileged = World(NodeConfig(allow_privileged=True))
    privileged.admit("seen", reach=[{"how": "cgroup", "detail": "device rule a *:* rwm"}])
    assert "container seen was given no GPU" in line(privileged, "seen", core_percent=10)
    with_card = privileged.granted("both", MGPU_MEMORY_MIB="512")
    with_card.advisory = True
    privileged.ask("set", container="both", memory_mib=1024)
    privileged.close()


def test_ways_to_name_a_container(world: World) -> None:
    first = world.granted("aaaa-1", MGPU_MEMORY_MIB="512")
    second = world.granted("aaaa-2", MGPU_MEMORY_MIB="512")
    world.granted("aaaa", MGPU_MEMORY_MIB="512")
    for name, identity in (("aaaa", "aaaa"), ("aaaa-1", "aaaa-1"), (second.id, "aaaa-2")):
        assert world.ask("set", container=name, core_percent=9)["container"]["container_id"] == identity
    assert "is called" in line(world, "aaa", core_percent=9), "three characters are no beginning"
    assert (
        line(world, "aaaa-", core_percent=9)
        == 'mgpu: "aaaa-" names 2 containers: aaaa-1, aaaa-2; give the id'
    )
    world.engine.busy.add(first.tenant)
    world.life.release(first)
    anew = world.granted("aaaa-1", MGPU_MEMORY_MIB="1024")
    assert world.ask("set", container="aaaa-1", core_percent=5)["container"]["id"] == anew.id
    assert line(world, "nobody", core_percent=9) == (
        'mgpu: no container with a grant is called "nobody"; '
        "give its id, the first 4 characters of it or more, or its pod: see mgpu ps"
    )


def test_pod_name_selects_its_only_container(world: World) -> None:
    keys = {
        "io.kubernetes.cri.container-type": "container",
        "io.kubernetes.cri.container-name": "app",
        "io.kubernetes.cri.sandbox-name": "web-0",
        "io.kubernetes.cri.sandbox-namespace": "prod",
        "mgpu.dev/memory-mib": "512",
    }
    for container in ("one", "two"):
        message: dict[str, object] = {"container_id": container, "rootfs": "/r", "annotations": keys}
        message |= {"env": {}, "reach": []}
        grant = world.admission.admit(message)
        assert grant is not None
        world.life.begin(grant, 1, 60)
        if container == "one":
            assert world.ask("set", container="web-0", core_percent=9)["container"]["pod"] == "web-0"
    assert line(world, "web-0", core_percent=9) == 'mgpu: "web-0" names 2 containers: one, two; give the id'


@pytest.mark.parametrize(
    "members", [{}, {"class": "both"}, {"core_percent": 0}, {"memory_mib": 0}, {"memory_mib": "1024"}]
)
def test_schema_wants_something_to_change(world: World, members: dict[str, Any]) -> None:
    world.granted("job")
    assert "control at $" in line(world, "job", **members)
