"""How much host memory a container can still take: evicted data lies in its own processes."""

import os
from contextlib import suppress

from native_sched.daemon.node.freezer import CGROUPS, PROC

# Version 1 writes "no limit" as a number of its own.
_NO_LIMIT_BYTES = 1 << 62


def room_bytes(pid: int, *, proc: str = PROC, cgroups: str = CGROUPS) -> int:
    """The room that the process's cgroups and the machine leave it, in bytes; 0 when it is gone."""
    room = _available_bytes(proc)
    try:
        with open(f"{proc}/{pid}/cgroup", encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError:
        return 0
    for line in lines:
        _number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            top, names = f"{cgroups}/memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        elif not controllers:
            unified = os.path.exists(f"{cgroups}/cgroup.controllers")
            top, names = cgroups if unified else f"{cgroups}/unified", ("memory.max", "memory.current")
        else:
            continue
        while True:
            room = min(room, _left_bytes(os.path.join(top, path.lstrip("/")), *names))
            if path in ("", "/"):
                break
            path = os.path.dirname(path)
    return max(0, room)


def _available_bytes(proc: str) -> int:
    with open(f"{proc}/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return 0


def _left_bytes(folder: str, limit: str, usage: str) -> int:
    """Pages of files that the kernel would drop first do not count as used."""
    with suppress(OSError, ValueError):
        most = _number(os.path.join(folder, limit))
        if most < _NO_LIMIT_BYTES:
            return most - _number(os.path.join(folder, usage)) + _inactive_file_bytes(folder)
    return _NO_LIMIT_BYTES


def _number(path: str) -> int:
    with open(path, encoding="ascii") as file:
        text = file.read().strip()
    return _NO_LIMIT_BYTES if text == "max" else int(text)


def _inactive_file_bytes(folder: str) -> int:
    with suppress(OSError, ValueError), open(os.path.join(folder, "memory.stat"), encoding="ascii") as file:
        for line in file:
            name, _, number = line.partition(" ")
            if name in ("inactive_file", "total_inactive_file"):
                return int(number)
    return 0
