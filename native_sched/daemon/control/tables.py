"""How full the tables are that tenants fill: what `mgpu health` warns of before the end."""

import os
import resource
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from native_sched.daemon.control.server import Peer, Reply, Verb
from native_sched.daemon.grants.served import Served
from native_sched.daemon.links.share import STARTS_MAX

# FILES_MAX of native_sched/nvidia/account/files.h.
FILES_MAX = 262144


def _files(served: Served) -> int:
    found = 0
    for grant in served.grants:
        with suppress(OSError):
            found += served.engine.state(grant.tenant).files
    return found


def tables(served: Served, held: int, folder: str) -> list[dict[str, Any]]:
    """folder: of the journal."""
    disk = os.statvfs(folder)
    return [
        {"name": "listeners", "used": held, "most": STARTS_MAX},
        {"name": "files of the driver", "used": _files(served), "most": FILES_MAX},
        {
            "name": "descriptors",
            "used": len(os.listdir("/proc/self/fd")),
            "most": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        },
        {
            "name": "MiB of the journal's file system",
            "used": (disk.f_blocks - disk.f_bavail) * disk.f_frsize >> 20,
            "most": max(1, disk.f_blocks * disk.f_frsize >> 20),
        },
    ]


def with_tables(health: Verb, told: Callable[[], list[dict[str, Any]]]) -> Verb:
    """The verb `health`, which tells of the tables too."""

    def answer(message: Mapping[str, Any], peer: Peer) -> Reply:
        return {**health(message, peer), "tables": told()}

    return answer
