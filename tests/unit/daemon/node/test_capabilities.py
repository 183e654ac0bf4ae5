"""MIG capabilities: a container gets those of its own instances."""

import json
from pathlib import Path
from typing import Any

import pytest

from native_sched.daemon.grants.edits import edits_from_cdi
from native_sched.daemon.node import capabilities
from native_sched.daemon.node.inventory import CardInfo
from oci_specs.refusal import Refusal
from placement.cards import CardShare

MINORS = """config 1
monitor 2
gpu0/gi1/access 12
gpu0/gi1/ci0/access 13
gpu0/gi2/access 21
gpu0/gi2/ci0/access 22
gpu1/gi1/access 147
gpu1/gi1/ci0/access 148
a line of another kind
"""
KIND = "nvidia.com/gpu"


def card(index: int, minor: int, uuid: str, instance: tuple[int, int] | None) -> CardInfo:
    return CardInfo(
        index=index, minor=minor, uuid=uuid, name="H200", memory_mib=17920, gpu_id=minor, instance=instance
    )


CARDS = [
    card(0, 0, "MIG-a", (1, 0)),
    card(1, 0, "MIG-b", (2, 0)),
    card(2, 1, "MIG-c", (1, 0)),
    card(3, 2, "GPU-d", None),
]


def share(of: CardInfo) -> CardShare:
    return CardShare(
        index=of.index, minor=of.minor, uuid=of.uuid, name=of.name, memory_mib=1024, core_percent=None
    )


def node(path: str, minor: int, major: int = 235) -> dict[str, Any]:
    return {"path": path, "type": "c", "major": major, "minor": minor}


def device(name: str, gpu: int, *caps: int) -> dict[str, Any]:
    nodes = [
        node(f"/dev/nvidia{gpu}", gpu, 195),
        *(node(f"/dev/nvidia-caps/nvidia-cap{cap}", cap) for cap in caps),
    ]
    return {"name": name, "containerEdits": {"deviceNodes": nodes}}


def write(folder: Path, *devices: dict[str, Any], common: tuple[dict[str, Any], ...] = ()) -> None:
    spec = {
        "cdiVersion": "0.6.0",
        "kind": KIND,
        "containerEdits": {"deviceNodes": [node("/dev/nvidiactl", 255, 195), *common]},
        "devices": list(devices),
    }
    (folder / "nvidia.json").write_text(json.dumps(spec))
    (folder / "mig-minors").write_text(MINORS)


def paths(folder: Path, *cards: CardInfo) -> list[str]:
    made = edits_from_cdi(KIND, [str(folder)], CARDS, str(folder / "mig-minors"))(map(share, cards))
    return [entry["path"] for entry in made["devices"]]


def test_instance_brings_its_gpu_and_its_two_capabilities(tmp_path: Path) -> None:
    write(tmp_path, device("MIG-a", 0, 12, 13), device("MIG-b", 0, 21, 22), device("MIG-c", 1, 147, 148))
    assert paths(tmp_path, CARDS[0]) == [
        "/dev/nvidiactl",
        "/dev/nvidia0",
        "/dev/nvidia-caps/nvidia-cap12",
        "/dev/nvidia-caps/nvidia-cap13",
    ]
    assert len(paths(tmp_path, CARDS[1], CARDS[2])) == 7


@pytest.mark.parametrize("caps", [(), (12,), (13,), (21, 22), (147, 148)])
def test_spec_without_an_instance_node_is_refused(tmp_path: Path, caps: tuple[int, ...]) -> None:
    write(tmp_path, device("MIG-a", 0, *caps))
    with pytest.raises(Refusal, match="does not bring") as refusal:
        paths(tmp_path, CARDS[0])
    assert refusal.value.code == "cdi-capability"


@pytest.mark.parametrize("foreign", [1, 2, 21, 22, 147, 300])
def test_spec_with_a_foreign_instance_node_is_refused(tmp_path: Path, foreign: int) -> None:
    write(tmp_path, device("MIG-a", 0, 12, 13, foreign))
    with pytest.raises(Refusal, match=f"nvidia-cap{foreign}, which is of no instance"):
        paths(tmp_path, CARDS[0])


def test_nor_by_another_name_nor_for_a_card_as_a_whole(tmp_path: Path) -> None:
    elsewhere = node("/dev/nvidia-caps/nvidia-cap13", 22)
    write(tmp_path, device("MIG-a", 0, 12, 13), common=(elsewhere,))
    with pytest.raises(Refusal, match="nvidia-cap22"):
        paths(tmp_path, CARDS[0])
    write(tmp_path, device("GPU-d", 2), common=(node("/dev/nvidia-caps/nvidia-cap2", 2),))
    with pytest.raises(Refusal, match="nvidia-cap2,"):
        paths(tmp_path, CARDS[3])
    write(tmp_path, device("GPU-d", 2))
    assert paths(tmp_path, CARDS[3]) == ["/dev/nvidiactl", "/dev/nvidia2"]


def test_instance_that_the_driver_does_not_have_is_refused(tmp_path: Path) -> None:
    write(tmp_path, device("MIG-a", 0, 12, 13))
    (tmp_path / "mig-minors").unlink()
    with pytest.raises(Refusal, match="no capability gpu0/gi1/access") as refusal:
        paths(tmp_path, CARDS[0])
    assert refusal.value.code == "no-capability"


def test_names_of_capabilities(tmp_path: Path) -> None:
    write(tmp_path)
    known = capabilities.minors(str(tmp_path / "mig-minors"))
    assert known["monitor"] == 2
    assert [known[name] for name in capabilities.needed(1, (1, 0))] == [147, 148]
    assert capabilities.minors(str(tmp_path / "none")) == {}
