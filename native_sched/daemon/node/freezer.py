"""Whether the kernel has frozen a container: the freezer of its cgroup, in either version of cgroups.

Every engine pauses by it, also those that send no event (`runc pause`, `podman pause`), and it is what is
believed: an engine's event says only that it is time to look.
"""

import os
from dataclasses import dataclass

CGROUPS = "/sys/fs/cgroup"
PROC = "/proc"


@dataclass(frozen=True)
class StateFile:
    """Where a process's freezer shows its state. tells: the kernel says when it changes (version 2)."""

    path: str
    tells: bool


def state_file(pid: int, *, proc: str = PROC, cgroups: str = CGROUPS) -> StateFile | None:
    """The one that holds for the process; None when it is gone or its cgroup cannot be seen.

    Where both versions are mounted, the first one's freezer is the one in use as long as it has the
    controller.
    """
    try:
        with open(f"{proc}/{pid}/cgroup", encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError:
        return None
    unified = None
    for line in lines:
        _number, controllers, path = line.split(":", 2)
        if "freezer" in controllers.split(","):
            return StateFile(_below(f"{cgroups}/freezer", path, "freezer.state"), tells=False)
        if not controllers:
            unified = path
    if unified is None:
        return None
    # In the hybrid layout the second version has a folder of its own.
    top = cgroups if os.path.exists(f"{cgroups}/cgroup.controllers") else f"{cgroups}/unified"
    return StateFile(_below(top, unified, "cgroup.events"), tells=True)


def _below(top: str, path: str, name: str) -> str:
    return os.path.join(top, path.lstrip("/"), name)


def is_frozen(content: bytes) -> bool:
    """What a state file says. One that is being frozen counts: part of it may already stand still."""
    if content.startswith((b"FROZEN", b"FREEZING")):
        return True
    return b"frozen 1" in content.splitlines()
