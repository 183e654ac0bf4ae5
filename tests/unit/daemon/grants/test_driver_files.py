"""A container gets the nodes that are mediated and the driver's files, whatever else its CDI spec brings."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from native_sched.daemon.grants import driver_files
from native_sched.daemon.grants.edits import edits_from_cdi
from native_sched.daemon.node.inventory import CardInfo
from oci_specs.reach import DRM_MAJOR, nvidia_drm_minors
from placement.cards import CardShare
from tests.create_path import grant
from tests.unit.spec_support import LISTENER, SOCKET, FakeHost, apply, load

KIND = "nvidia.com/gpu"
SPECS = Path(__file__).parents[2] / "cdi"
FIRST = "GPU-0f7a32d2-6b1c-4c4e-9a40-6a7f5a3c9b11"
INSTANCE = "MIG-6f0b9c51-7e9a-5c1b-8b1d-2e5f0c7d9a33"
CONTROL = {"/dev/nvidiactl", "/dev/nvidia-uvm"}
CAPS = {"/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-caps/nvidia-cap13"}
MINORS = "gpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\ngpu0/gi2/access 21\ngpu0/gi2/ci0/access 22\n"
NUMBERS = {
    "nvidia0": (195, 0),
    "nvidiactl": (195, 255),
    "nvidia-modeset": (195, 254),
    "nvidia-uvm": (511, 0),
    "nvidia-uvm-tools": (511, 1),
    "dri/card1": (226, 1),
    "dri/renderD128": (226, 128),
}


def made(folder: Path, spec: str, uuid: str, known: list[CardInfo] | None = None) -> dict[str, Any]:
    """The grant's edits for the first card of one of the specs."""
    root = folder / "driver"
    (root / "dev/dri").mkdir(parents=True)
    for name, numbers in NUMBERS.items():
        os.mknod(root / "dev" / name, stat.S_IFCHR | 0o600, os.makedev(*numbers))
    (folder / "cdi").mkdir()
    (folder / "cdi/nvidia.yaml").write_text((SPECS / spec).read_text().replace("ROOT", str(root)))
    (folder / "mig-minors").write_text(MINORS)
    card = CardShare(index=0, minor=0, uuid=uuid, name="H100", memory_mib=1024, core_percent=None)
    edits = edits_from_cdi(
        KIND, [str(folder / "cdi")], known or [], str(folder / "mig-minors"), str(folder / "proc")
    )
    return edits([card])


@pytest.mark.parametrize(
    ("spec", "uuid", "nodes"),
    [
        ("two-gpus.yaml", FIRST, {"/dev/nvidia0"}),
        ("mig-with-graphics.yaml", INSTANCE, {"/dev/nvidia0", *CAPS}),
        ("older-driver-root.yaml", "GPU-of-another-name", {"/dev/nvidia0"}),
    ],
)
def test_no_node_comes_with_a_grant_but_those_that_are_mediated(
    tmp_path: Path, spec: str, uuid: str, nodes: set[str]
) -> None:
    instance = (1, 0) if uuid == INSTANCE else None
    card = CardInfo(index=0, minor=0, uuid=uuid, name="H100", memory_mib=80000, gpu_id=0, instance=instance)
    given = made(tmp_path, spec, uuid, [card])
    assert {device["path"] for device in given["devices"]} == nodes | CONTROL
    assert not [device for device in given["devices"] if device["major"] == DRM_MAJOR]
    mounted = [mount["destination"] for mount in given["mounts"]]
    assert not [path for path in mounted if not path.startswith(("/usr/", "/lib/"))]
    assert [path for path in mounted if "libcuda" in path]
    words = [word for hooks in given["hooks"].values() for hook in hooks for word in hook["args"]]
    assert not [word for word in words if "/dev/dri" in word]
    assert "update-ldcache" in words
    assert ("/dev/nvidia-caps" in words) == (uuid == INSTANCE)


def test_spec_of_all_nodes_brings_the_grants_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    given = made(tmp_path, "management.yaml", FIRST)
    assert {device["path"] for device in given["devices"]} == {"/dev/nvidia0", *CONTROL}
    assert given["hooks"] == {}
    [line] = [line for line in capfd.readouterr().err.splitlines() if "cdi-left-out" in line]
    for name in ("nvidia1", "nvidia-nvswitchctl", "nvidia-caps-imex-channels/channel0", "nvidia-modeset"):
        assert f"/dev/{name}" in line


def test_links_and_hooks_of_other_files_stay(tmp_path: Path) -> None:
    given = made(tmp_path, "two-gpus.yaml", FIRST)
    hooks = [hook["args"][1] for hook in given["hooks"]["createContainer"]]
    assert hooks == [
        "create-symlinks",
        "enable-cuda-compat",
        "update-ldcache",
        "disable-device-node-modification",
        "update-application-profile",
    ]
    assert len(given["hooks"]["createContainer"][0]["args"]) == 6


def test_mount_of_a_node_is_no_file_of_the_driver() -> None:
    mounts = [
        {"source": source, "destination": destination}
        for source, destination in [
            ("/dev/dri", "/opt/dri"),
            ("/", "/opt/host"),
            ("/opt/x", "/dev/x"),
            ("/run/nvidia/driver/usr/lib/libcuda.so", "/usr/lib/libcuda.so"),
            ("/srv//../dev/dri", "/opt/dri"),
        ]
    ]
    kept, left_out = driver_files.keep_own({"devices": [], "mounts": mounts, "hooks": {}}, frozenset())
    assert [mount["destination"] for mount in kept["mounts"]] == ["/usr/lib/libcuda.so"]
    assert left_out == ["/dev/x", "/opt/dri", "/opt/host"]


def proc(folder: Path) -> Path:
    for name, minor in (("0000:41:00.0", 0), ("0000:c1:00.0", 1), ("0000:e1:00.0", 2)):
        (folder / "proc/gpus" / name).mkdir(parents=True)
        (folder / "proc/gpus" / name / "information").write_text(
            f"Model: \t\t NVIDIA H100\nGPU UUID: \t GPU-{minor}\nDevice Minor: \t {minor}\n"
        )
    for name in ("gpu0/mig/gi1", "gpu0/mig/gi2", "gpu1/mig", "mig"):
        (folder / "proc/capabilities" / name).mkdir(parents=True)
    return folder


def test_drivers_procfs_shows_the_grants_cards_alone(tmp_path: Path) -> None:
    given = made(proc(tmp_path), "two-gpus.yaml", FIRST)
    assert given["masked_paths"] == [
        "/proc/driver/nvidia/gpus/0000:c1:00.0",
        "/proc/driver/nvidia/gpus/0000:e1:00.0",
        "/proc/driver/nvidia/capabilities/gpu1",
    ]


def test_drivers_procfs_shows_the_grants_instance_alone(tmp_path: Path) -> None:
    card = CardInfo(index=0, minor=0, uuid=INSTANCE, name="H100", memory_mib=1, gpu_id=0, instance=(1, 0))
    given = made(proc(tmp_path), "mig-with-graphics.yaml", INSTANCE, [card])
    assert given["masked_paths"][-2:] == [
        "/proc/driver/nvidia/capabilities/gpu0/mig/gi2",
        "/proc/driver/nvidia/capabilities/gpu1",
    ]


def test_container_reads_the_drivers_procfs_and_does_not_write_it() -> None:
    """Its registry takes keys for the whole node from whoever is root."""
    given = grant(SOCKET, LISTENER)
    given["edits"]["masked_paths"] = ["/proc/driver/nvidia/gpus/0000:c1:00.0", "/proc/kcore"]
    spec = load("docker-20.10-default")
    spec["linux"] |= {"readonlyPaths": ["/proc/sys"], "maskedPaths": ["/proc/kcore"]}
    linux = apply(spec, given)["linux"]
    assert linux["readonlyPaths"] == ["/proc/sys", "/proc/driver/nvidia"]
    assert linux["maskedPaths"] == ["/proc/kcore", "/proc/driver/nvidia/gpus/0000:c1:00.0"]


DRM = FakeHost(drm={1, 128})


def drm(minor: int, **more: Any) -> dict[str, Any]:
    return {"type": "c", "major": DRM_MAJOR, "minor": minor, **more}


def test_drm_nodes_of_others_stay_beside_a_grant() -> None:
    spec = load("docker-20.10-default")
    spec["linux"]["devices"] += [drm(128, path="/dev/dri/renderD128"), drm(0, path="/dev/dri/card0")]
    rules = [drm(minor, allow=True, access="rwm") for minor in (128, 0)]
    spec["linux"]["resources"]["devices"] += rules
    new = apply(spec, grant(SOCKET, LISTENER), DRM)
    assert "/dev/dri/card0" in [device["path"] for device in new["linux"]["devices"]]
    assert "/dev/dri/renderD128" not in [device["path"] for device in new["linux"]["devices"]]
    assert rules[1] in new["linux"]["resources"]["devices"]
    assert rules[0] not in new["linux"]["resources"]["devices"]


def test_drm_nodes_are_closed_in_a_user_namespace_without_rules() -> None:
    spec = load("docker-20.10-default")
    spec["linux"]["namespaces"].append({"type": "user"})
    spec["linux"]["resources"]["devices"] = []
    given = grant(SOCKET, LISTENER)
    for device in given["edits"]["devices"]:
        device["hostPath"] = "/srv" + device["path"]
    rules = apply(spec, given, DRM)["linux"]["resources"]["devices"]
    for minor in (1, 128):
        assert {"allow": False, "type": "c", "major": DRM_MAJOR, "minor": minor, "access": "rwm"} in rules


def test_driver_of_a_drm_node_is_known_by_sysfs(tmp_path: Path) -> None:
    for name, driver in (("226:1", "nvidia"), ("226:128", "nvidia"), ("226:0", "i915"), ("10:1", "nvidia")):
        (tmp_path / "drivers" / driver).mkdir(parents=True, exist_ok=True)
        (tmp_path / "char" / name / "device").mkdir(parents=True)
        (tmp_path / "char" / name / "device/driver").symlink_to(tmp_path / "drivers" / driver)
    (tmp_path / "char/226:64").mkdir()
    assert nvidia_drm_minors(str(tmp_path / "char")) == {1, 128}
    assert nvidia_drm_minors(str(tmp_path / "none")) == frozenset()
