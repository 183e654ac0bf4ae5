"""The CDI spec that simulated cards write about themselves."""

import argparse
import json
import os
import stat
from pathlib import Path

import pytest

from oci_specs.refusal import Refusal
from sim import cdi
from sim.cards import CardProcess, running


def test_spec(tmp_path: Path) -> None:
    with running(tmp_path, "v100-16:2", rm_call_us=0) as card:
        path = cdi.write(tmp_path, card.admin_socket)
        uuids = [one.uuid for one in card.cards()]
    spec = json.loads(path.read_text(encoding="utf-8"))
    assert (spec["cdiVersion"], spec["kind"]) == ("0.6.0", "sim.mgpu.dev/gpu")
    nodes = {
        device["name"]: [node["path"] for node in device["containerEdits"]["deviceNodes"]]
        for device in spec["devices"]
    }
    assert nodes == {
        "0": ["/dev/nvidia0"],
        uuids[0]: ["/dev/nvidia0"],
        "1": ["/dev/nvidia1"],
        uuids[1]: ["/dev/nvidia1"],
        "all": ["/dev/nvidia0", "/dev/nvidia1"],
    }
    common = spec["containerEdits"]
    for node in common["deviceNodes"]:
        assert (node["type"], node["major"], node["minor"], node["permissions"]) == ("c", 1, 3, "rw")
    assert [node["path"] for node in common["deviceNodes"]] == ["/dev/nvidiactl", "/dev/nvidia-uvm"]
    for mount in common["mounts"]:
        assert Path(mount["hostPath"]).is_file()
        assert mount["options"] == ["ro", "nosuid", "nodev", "bind"]
    assert {mount["containerPath"]: Path(mount["hostPath"]).name for mount in common["mounts"]} == {
        "/usr/lib/x86_64-linux-gnu/libcuda.so": "libcuda.so.1",
        "/usr/lib/x86_64-linux-gnu/libcuda.so.1": "libcuda.so.1",
        "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1": "libnvidia-ml.so.1",
    }
    assert not list(tmp_path.glob("*.tmp"))


def test_nodes_are_kept_for_mounts(tmp_path: Path) -> None:
    with running(tmp_path, "v100-16:2", rm_call_us=0) as card:
        for _ in range(2):
            spec = json.loads(cdi.write(tmp_path, card.admin_socket).read_text())
        found = {
            node["path"]: Path(node["hostPath"])
            for edits in (spec, spec["devices"][-1])
            for node in edits["containerEdits"]["deviceNodes"]
        }
        assert sorted(found) == ["/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl"]
        for path, kept in found.items():
            assert kept.name == Path(path).name
            assert kept.stat().st_mode == stat.S_IFCHR | 0o666
            assert kept.stat().st_rdev == os.makedev(1, 3)


def test_file_system_without_devices_keeps_no_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.statvfs", lambda path: argparse.Namespace(f_flag=os.ST_NODEV))
    with running(tmp_path, "v100-16:1", rm_call_us=0) as card:
        spec = json.loads(cdi.write(tmp_path, card.admin_socket).read_text())
    assert not [node for node in spec["containerEdits"]["deviceNodes"] if "hostPath" in node]


def test_cdi_spec_is_refused_without_a_card(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="no simulated GPU answers"):
        cdi.write(tmp_path, tmp_path / "admin.sock")
    assert list(tmp_path.iterdir()) == []


def test_spec_follows_the_minors(card: CardProcess) -> None:
    spec = cdi.spec(card.cards()[2:], {})
    assert spec["devices"][0]["name"] == "2"
    assert spec["devices"][-1]["containerEdits"]["deviceNodes"][0]["path"] == "/dev/nvidia2"
