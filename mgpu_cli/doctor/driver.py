"""The GPU driver, real or simulated."""

from __future__ import annotations

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
        yield ok("driver-simulated", f"the {host.health['cards']} cards are simulated, driver {version}")
    elif text is None:
        yield note(
            "driver-none",
            "no NVIDIA driver is loaded",
            "simulated cards need none",
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
        "mgpu's part for it has not been brought up on a card yet (docs/nvidia-driver.md): mgpud --driver nvidia is "
        "refused",
    )
    for node in NODES:
        if not host.path(node).exists():
            yield warn("driver-node", f"{node} is not there", "CDI specs name it", "nvidia-modprobe -c 0 -u")


def alive(host: Host) -> Iterator[Finding]:
    if isinstance(host.health, dict) and not host.health["driver_alive"]:
        yield fail(
            "driver-lost",
            "the driver no longer answers mgpud",
            "nothing new is started until it does",
            "restart mgpud once the driver is back",
        )


GROUP = Group("driver", (loaded, alive))
