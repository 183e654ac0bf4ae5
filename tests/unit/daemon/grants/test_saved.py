"""Admission of a container of a checkpoint: where it may come back to, and that it counts as evicted."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from native_sched.daemon.engine_abi import NodeKind
from native_sched.daemon.grants import memory_kind, saved
from native_sched.daemon.grants.admission import Admission
from native_sched.daemon.grants.claims import Claims
from native_sched.daemon.grants.closed import Closed
from native_sched.daemon.grants.grants import Grant, Reclaim, ReclaimState
from native_sched.daemon.node import device_nodes
from native_sched.daemon.node.config import NodeConfig
from oci_specs import schemas
from oci_specs.refusal import Refusal
from placement.cards import CardShare
from tests.unit.arbiter_support import CARDS, World

MIB = 1 << 20
NAME = CARDS[0].name
Gpu = dict[str, Any]


def gpu(minor: int = 0, mib: int = 100, **other: Any) -> Gpu:
    return {"uuid": f"GPU-old-{minor}", "name": NAME, "minor": minor, "bytes": mib * MIB, **other}


@pytest.fixture
def world() -> Iterator[World]:
    one = World(NodeConfig())
    yield one
    one.close()


def admitted(world: World, had: list[Gpu], driver: str = "580.95.05", **env: str) -> Grant:
    claims = Claims(str(world.folder / "claims"), world.grants)
    admission = Admission(world.served, lambda _: {"devices": [], "mounts": []}, claims, Closed(), driver)
    message = {
        "container_id": "c1",
        "rootfs": "/r",
        "annotations": {},
        "env": env or {"MGPU_MEMORY_MIB": "1024"},
        "reach": [],
        "saved": had,
    }
    whole = {"version": 1, "verb": "admit", "bundle": "/b", "seccomp_listener": None, **message}
    schemas.validate("control", whole)
    grant = admission.admit(message)
    assert grant is not None
    world.life.begin(grant, os.getpid(), 60)
    return grant


def refusal(world: World, had: list[Gpu], driver: str = "580.95.05") -> str:
    with pytest.raises(Refusal) as raised:
        admitted(world, had, driver)
    assert len(world.grants) == 0
    return raised.value.line()


def test_restored_container_counts_as_evicted_from_its_admission_on(world: World) -> None:
    grant = admitted(world, [gpu(1)])
    assert [card.minor for card in grant.cards] == [1], "its /dev came with it"
    assert grant.reclaim == Reclaim(
        state=ReclaimState.EVICTING,
        saved=("GPU-old-1",),
        bytes={1: 100 * MIB},
        since_ns=grant.reclaim.since_ns,
    )
    assert world.engine.memory_told == [(grant.tenant, True, None)], "it gets no memory"
    [card] = world.arbiter.verbs()["list"]({}, None)["containers"][0]["cards"]  # type: ignore[arg-type]
    assert (card["evicted_bytes"], card["evicted_from"]) == (100 * MIB, "GPU-old-1")


def test_next_mgpud_knows_it_too(world: World) -> None:
    grant = admitted(world, [gpu()])
    after = World(NodeConfig(), world.folder)
    [found] = after.store.load().grants
    assert found.reclaim == grant.reclaim
    memory_kind.tell(after.served.engine, after.served.config, found)
    assert after.engine.memory_told == [(grant.tenant, True, None)]
    after.close()


def test_several_gpus_are_told_apart_by_their_nodes(world: World) -> None:
    had = [gpu(1, 7), gpu(0, 0)]
    grant = admitted(world, had, MGPU_MEMORY_MIB="2048", MGPU_GPUS="2")
    assert grant.reclaim.saved == ("GPU-old-0", "GPU-old-1")
    assert grant.reclaim.bytes == {1: 7 * MIB}


@pytest.mark.parametrize(
    ("had", "said"),
    [
        ([gpu(7)], "checkpointed with /dev/nvidia7, a GPU that this node has not"),
        ([gpu(), gpu(1)], "checkpointed with 2 GPUs, and its spec asks for 1"),
        ([gpu(name="NVIDIA A10")], "checkpointed on a NVIDIA A10, and GPU 0 is a Tesla V100-SXM2-16GB"),
        ([gpu(mib=1025)], "had 1025 MiB of GPU memory, and its cap is 1024 MiB now"),
    ],
)
def test_container_that_could_not_come_back_is_refused(world: World, had: list[Gpu], said: str) -> None:
    line = refusal(world, had)
    assert said in line
    assert "\n" not in line


def test_driver_that_restores_onto_the_same_gpu_only_is_given_no_other(world: World) -> None:
    assert "restores a process onto its own GPUs only" in refusal(world, [gpu()], "570.86.16")
    grant = admitted(world, [gpu(uuid=CARDS[0].uuid)], "570.86.16")
    assert grant.reclaim.state == "evicting"


def test_driver_that_moves_no_process_takes_one_that_had_nothing(world: World) -> None:
    assert "does not move processes onto" in refusal(world, [gpu(uuid=CARDS[0].uuid)], "565.57.01")
    assert admitted(world, [gpu(mib=0)], "565.57.01").reclaim == Reclaim()


def test_mig_instance_takes_back_no_process() -> None:
    card = CARDS[0]
    instance = type(card)(**{**vars(card), "instance": (1, 0)})
    share = CardShare(index=0, minor=0, uuid=card.uuid, name=NAME, memory_mib=1024, core_percent=None)
    with pytest.raises(Refusal, match="without MIG"):
        saved.reclaim([gpu(uuid=card.uuid)], [share], "580.95.05", [instance])


def test_only_nodes_of_its_own_cards_have_to_be_in_its_dev(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    os.mknod(tmp_path / "dev" / "nvidia0", 0o20600, os.makedev(1, 3))
    devices = [{"path": f"/dev/nvidia{minor}", "major": 1, "minor": 3} for minor in (0, 1)]
    me, root = os.getpid(), str(tmp_path)
    [(_, kind, minor)] = device_nodes.identities(me, root, devices, {0})
    assert (kind, minor) == (NodeKind.CARD, 0)
    for cards in ({0, 1}, range(9)):
        with pytest.raises(Refusal, match="nvidia1"):
            device_nodes.identities(me, root, devices, cards)
