"""Leftovers of earlier runs, and grants whose container has ended."""

import os
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any

from mgpu_cli import render
from mgpu_cli.doctor.finding import Finding, Group, fail, note, ok, warn
from mgpu_cli.doctor.host import Host, NoAnswerError
from mgpu_cli.doctor.kernel import GUARD

# What `mgpu run` names a container's cgroup (mgpu_cli/bundle.py).
OUR_CGROUP = "mgpu-*"
CGROUPS = "/sys/fs/cgroup"
SHOWN = 3
# Whose each socket of the state directory is.
SOCKETS = {
    "mgpud.sock": "mgpud",
    "metrics.sock": "mgpud",
    "holder.sock": "mgpu-holder",
    "seccomp.sock": "mgpu-holder",
    # mgpu up has it, and ends with its holder.
    "notify.sock": "mgpu-holder",
    "admin.sock": "mgpu-simcard",
    "card.sock": "mgpu-simcard",
}


def _some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def _running(host: Host) -> set[str]:
    """Which of mgpu's programs serve this state directory."""
    found = set()
    for words in host.commands():
        if any(PurePath(word).is_relative_to(host.state.path) for word in words if word.startswith("/")):
            found |= {PurePath(word).name for word in words}
    return found


def sockets(host: Host) -> Iterator[Finding]:
    # No socket is connected to: the holder would take this command for the next mgpud.
    running = _running(host)
    stale = [
        os.fspath(path)
        for path in host.state.sockets
        if host.is_socket(path) and SOCKETS[path.name] not in running
    ]
    if stale:
        yield warn(
            "leftover-sockets",
            f"nobody listens at {_some(stale)}",
            "left by programs that were killed; mgpu up takes them away when it starts",
            shlex.join(["rm", *stale]),
        )


def _containers(host: Host) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = host.ask(os.fspath(host.state.control), "list")["containers"]
    except (NoAnswerError, KeyError):
        return []
    return found


def _name(container: dict[str, Any]) -> str:
    return render.name(container) or container["container_id"]


def grants(host: Host) -> Iterator[Finding]:
    """A grant is given back by the container's end; one whose process is gone was not."""
    if isinstance(host.health, str):
        return
    containers = _containers(host)
    orphans = [
        _name(each)
        for each in containers
        if each["state"] == "bound" and each["pid"] and not host.path(f"/proc/{each['pid']}").exists()
    ]
    if orphans:
        yield warn(
            "leftover-grants",
            f"{_some(orphans)}: the container is gone and its grant is not",
            "its memory stays reserved",
            f"mgpu describe {shlex.quote(orphans[0])}",
        )
    draining = [_name(each) for each in containers if each["state"] == "draining"]
    if draining:
        yield note(
            "leftover-draining",
            f"{_some(draining)}: ended, with processes that still hold files of the driver",
            "its memory is given back with the last of them",
            f"mgpu describe {shlex.quote(draining[0])}",
        )
    if not orphans:
        yield ok("leftover-grants", "every grant has its container")


def listeners(host: Host) -> Iterator[Finding]:
    """A container outlives mgpud or the holder, and not both at once."""
    lost = [each for each in _containers(host) if each.get("lost_listener")]
    if lost:
        pid = lost[0]["pid"]
        yield fail(
            "leftover-listeners",
            f"{_some([*map(_name, lost)])}: running without a listener",
            "holder and mgpud ended at once, and its GPU calls fail until it is started anew",
            f"kill -KILL {pid}",
        )


def guard(host: Host) -> Iterator[Finding]:
    if host.is_there(GUARD) and "mgpud" not in _running(host):
        yield warn(
            "leftover-guard",
            "mgpud does not run, and its program still keeps NVIDIA's open files from processes without a grant",
            "containers of other runtimes cannot pass such files on; an mgpud that starts takes it over",
            shlex.join(["rm", "-r", GUARD]),
        )


def _hierarchies(host: Host) -> list[Path]:
    top = host.path(CGROUPS)
    if (top / "cgroup.controllers").exists():
        return [top]
    return sorted(path for path in top.iterdir() if path.is_dir()) if top.is_dir() else []


def cgroups(host: Host) -> Iterator[Finding]:
    groups: dict[str, list[Path]] = {}
    for hierarchy in _hierarchies(host):
        for group in hierarchy.glob(OUR_CGROUP):
            groups.setdefault(group.name, []).append(group)
    # A runtime need not use every hierarchy of the first version for its processes.
    names = sorted(name for name, found in groups.items() if not any(map(_in_use, found)))
    if names:
        folders = [f"/{os.path.relpath(group, host.root)}" for group in groups[names[0]]]
        yield note(
            "leftover-cgroups",
            f"cgroups without a process: {_some(names)}",
            "named as those of mgpu run: left by its containers that were killed, or by another program",
            shlex.join(["rmdir", *folders]),
        )


def _in_use(group: Path) -> bool:
    """Whether there is a process in it or below it."""
    for procs in group.rglob("cgroup.procs"):
        with suppress(OSError):
            if procs.read_text().strip():
                return True
    return False


def mounts(host: Host) -> Iterator[Finding]:
    """Containers of `mgpu run` have their root below the state directory only while they run."""
    if isinstance(host.health, dict):
        return
    below = []
    for line in (host.text("/proc/self/mounts") or "").splitlines():
        words = line.split(" ")
        point = (
            re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), words[1]) if len(words) > 1 else "/"
        )
        if PurePath(point).is_relative_to(host.state.path) and point != os.fspath(host.state.path):
            below.append(point)
    if below:
        yield warn(
            "leftover-mounts",
            f"mounts below {host.state.path} while no mgpud runs: {_some(below)}",
            "",
            f"umount {shlex.quote(below[-1])}",
        )


GROUP = Group("leftovers", (sockets, grants, listeners, guard, cgroups, mounts))
