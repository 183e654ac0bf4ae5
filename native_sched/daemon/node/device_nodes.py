"""Identity of the device nodes a container was given.

The runtime makes the nodes in the container's own /dev before it calls createRuntime hooks; from then on
tenant code can move them about, so they are looked at here, once, by the hook's call. At that time the init
process is in the container's mount namespace but has not changed root: its /proc/PID/root is the host's, and
the container's files are below its rootfs path. Of a container that CRIU has restored, and left stopped, all
is in place, and the rootfs path is "".
"""

import os
import stat
from collections.abc import Container, Iterable, Mapping
from typing import Any

from native_sched.daemon.engine_abi import NodeKind
from oci_specs.refusal import Refusal, quoted

_KINDS = {"nvidiactl": NodeKind.CTL, "nvidia-uvm": NodeKind.UVM}


def kind_of(path: str) -> tuple[NodeKind, int] | None:
    """(kind, minor) of an NVIDIA device path, None for one that takes no mediated call."""
    name = os.path.basename(path)
    if name in _KINDS:
        return _KINDS[name], 0
    minor = name.removeprefix("nvidia")
    return (NodeKind.CARD, int(minor)) if minor != name and minor.isdecimal() else None


def _has_user(pid: int, uid: int) -> bool:
    """Whether a user of ours is one of the process's user namespace, if that is another than ours."""
    if os.path.samefile(f"/proc/{pid}/ns/user", "/proc/self/ns/user"):
        return False
    with open(f"/proc/{pid}/uid_map", encoding="ascii") as uid_map:
        ranges = [[int(word) for word in line.split()] for line in uid_map]
    return any(first <= uid < first + count for _inside, first, count in ranges)


def identities(
    pid: int, rootfs: str, devices: Iterable[Mapping[str, Any]], cards: Container[int] = range(1 << 20)
) -> list[tuple[os.stat_result, NodeKind, int]]:
    """(stat, kind, minor) of every granted node of a container that is being created. cards: minors of those
    that are not to be missing.

    Refusal when a node is missing or is another device than the grant's: the driver's own, or the null device
    that stands in for a simulated card's. Refusal too when it is the host's node, as in a user namespace, and
    the container has its owner, who may close it to all others.
    """
    found = []
    for device in devices:
        path = str(device["path"])
        what = kind_of(path)
        if what is None:
            continue
        inside = f"/proc/{pid}/root{rootfs.rstrip('/')}{path}"
        try:
            seen = os.stat(inside, follow_symlinks=False)
        except OSError as error:
            if what[0] == NodeKind.CARD and what[1] not in cards:
                continue
            raise Refusal(
                "node-missing",
                f"the container has no {path} after its runtime made the device nodes ({error.strerror})",
                "use runc or crun, and an image whose /dev is a plain directory",
            ) from error
        granted = os.makedev(int(device["major"]), int(device["minor"]))
        if not stat.S_ISCHR(seen.st_mode) or seen.st_rdev != granted:
            raise Refusal(
                "node-foreign",
                f"{path} in the container is not the node that was granted",
                f"remove {quoted(path)} from the image or from its mounts",
            )
        if _has_user(pid, seen.st_uid):
            raise Refusal(
                "node-owned",
                f"user {seen.st_uid} of the host, who owns {path}, is in the container's user namespace",
                "map the container's users to others of the host",
            )
        found.append((seen, *what))
    return found
