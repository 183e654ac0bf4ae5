"""The GPU driver, real or simulated, and whether its interface is known."""

import re
from collections.abc import Iterator

from mgpu_cli.doctor.finding import Finding, Group, fail, note, ok, warn
from mgpu_cli.doctor.host import Host

VERSION = "/proc/driver/nvidia/version"
NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm")


def loaded(host: Host) -> Iterator[Finding]:
    text = host.text(VERSION)
    if isinstance(host.health, dict) and host.health["driver"] == "sim":
        version = host.health["driver_version"]
        yield ok(
            "driver-simulated",
            f"the {host.health['cards']} GPUs are simulated, driver {version}, the table of {host.health['rm_table']}",
        )
    elif text is None:
        yield note(
            "driver-none",
            "no NVIDIA driver is loaded",
            "simulated GPUs need none",
            "mgpu up --sim v100-16:2",
        )
    if text is None:
        return
    found = re.search(r"Kernel Module(?: for \S+)?\s+(\d[\d.]*)", text)
    if found is None:
        yield warn("driver-version", f"{VERSION} names no version", "", f"cat {VERSION}")
        return
    yield note(
        "driver-nvidia",
        f"the NVIDIA driver {found[1]} is loaded",
        "mgpu has not been brought up on a GPU yet: docs/nvidia-driver.md says what is to be seen there",
    )
    yield from _table(host, found[1])
    for node in NODES:
        if not host.path(node).exists():
            yield warn("driver-node", f"{node} is not there", "CDI specs name it", "nvidia-modprobe -c 0 -u")


def _table(host: Host, version: str) -> Iterator[Finding]:
    """Of the interface: sizes and offsets differ between versions, and a cap is as good as they are."""
    if isinstance(host.health, dict) and host.health.get("rm_table_override"):
        yield warn(
            "driver-table-overridden",
            f"driver {version} is taken for {host.health['rm_table_override']}: the table of "
            f"{host.health['rm_table']} is in use",
            "where their interfaces differ, caps may not hold",
            "take driver_table out of node.toml once mgpu knows the driver",
        )
        return
    row = host.rm_row(version)
    if row.version:
        yield ok("driver-table", f"its interface is known, the table of {row.version}")
        return
    yield fail(
        "driver-table",
        f"the interface of driver {version} is not known, only those of {row.known} and later ones of each branch",
        "mgpud refuses to start with it",
        "install one of them, or set driver_table in node.toml to the branch it is like",
    )


GROUP = Group("driver", (loaded,))
