"""What befalls a node for some seconds: parts that stop or starve, a full or read-only folder, files that are
gone, a clock that jumps. Each is over at the end of its `with` block.
"""

import os
import random
import signal
import struct
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from oci_specs import paths
from tests.support.arbiter import Arbiter
from tests.support.commands import run
from tests.support.processes import others_here

SOCKETS = "mgpud.sock", "seccomp.sock", "holder.sock", "metrics.sock", "notify.sock"
# Whose absence a node that runs may meet: a package half installed, a driver that apt has replaced.
HOUR_S, DAY_S = 3600.0, 86400.0
JUMPS_S = (-30 * DAY_S, -HOUR_S, -1.0, 1.0, HOUR_S, 30 * DAY_S)


@dataclass(frozen=True)
class Node:
    """mgpu whose programs have the wall clock of the file `clock`, and what of it is chosen at random."""

    mgpu: Arbiter
    clock: Path
    random: random.Random

    def pids(self, program: str) -> list[int]:
        if program == "standby":
            found = self.mgpu.standby()
            return [] if found is None else [found]
        if program in ("holder", "mgpud"):
            return self.mgpu.pids_of(program)
        return [pid for pid in others_here() if program.encode() in _command(pid)]


def _command(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def fill(root: Path) -> Path:
    ballast = root / "ballast"
    with ballast.open("wb", buffering=0) as file:
        while os.statvfs(root).f_bavail:
            file.write(bytes(4096))
    return ballast


@contextmanager
def full(node: Node) -> Iterator[None]:
    ballast = node.mgpu.root / "ballast"
    try:
        with suppress(OSError):
            fill(node.mgpu.root)
        yield
    finally:
        ballast.unlink()


@contextmanager
def without_files(node: Node) -> Iterator[None]:
    """There is room for bytes, and for no name more."""
    folder = node.mgpu.root / "ballasts"
    folder.mkdir()
    try:
        with suppress(OSError):
            for number in range(1 << 20):
                (folder / str(number)).touch()
        yield
    finally:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


@contextmanager
def read_only(root: Path) -> Iterator[None]:
    """For programs that open a file by its name from now on; open files are not closed by it."""
    run("mount", "--bind", root, root)
    run("mount", "-o", "remount,bind,ro", root)
    try:
        yield
    finally:
        run("umount", "-l", root)


@contextmanager
def stopped(node: Node, program: str) -> Iterator[None]:
    pids = node.pids(program)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


# mgpud, and what it starts.
STARVED = "mgpud", "/mgpu-checkpoint", "containerd_api.watch"


@contextmanager
def starved(node: Node) -> Iterator[None]:
    """mgpud gets what another program leaves of one processor; its scheduler's thread is above both."""
    processors = os.sched_getaffinity(0)
    one = {min(processors)}
    _put(node, one, os.SCHED_OTHER, os.SCHED_IDLE)
    with subprocess.Popen(["/bin/sh", "-c", "while :; do :; done"]) as hog:
        os.sched_setaffinity(hog.pid, one)
        try:
            yield
        finally:
            hog.kill()
            # Also the threads and programs that began meanwhile: they have inherited it.
            _put(node, processors, os.SCHED_IDLE, os.SCHED_OTHER)


def _put(node: Node, processors: set[int], policy: int, then: int) -> None:
    pids = [pid for program in STARVED for pid in node.pids(program)]
    for tid in (int(task.name) for pid in pids for task in Path(f"/proc/{pid}/task").glob("*")):
        with suppress(ProcessLookupError):
            os.sched_setaffinity(tid, processors)
            if os.sched_getscheduler(tid) == policy:
                os.sched_setscheduler(tid, then, os.sched_param(0))


@contextmanager
def removed(path: Path) -> Iterator[None]:
    """What mgpu makes anew meanwhile stays."""
    away = path.with_name(f".{path.name}.away")
    path.rename(away)
    try:
        yield
    finally:
        if path.exists():
            away.unlink()
        else:
            away.rename(path)


@contextmanager
def jumped(node: Node) -> Iterator[None]:
    """And back."""
    move(node.clock, node.random.choice(JUMPS_S))
    try:
        yield
    finally:
        move(node.clock, 0)


def move(clock: Path, seconds: float) -> None:
    """The file is mapped by those that go by it, and is written in place."""
    with clock.open("r+b") as file:
        file.write(struct.pack("=d", seconds))


def files(node: Node) -> Sequence[Path]:
    root = node.mgpu.root
    programs = ("mgpu-hook", "mgpu-runtime", "mgpu-checkpoint", "mgpu-listener", "mgpu-holder")
    return [
        root / "runtime.conf",
        *(root / "bin").iterdir(),
        *(root / "cdi").iterdir(),
        *(Path(paths.libexec(name)) for name in programs),
        *sorted(path for path in Path(paths.lib("sim")).iterdir() if path.is_file()),
    ]


@contextmanager
def socket_removed(node: Node) -> Iterator[None]:
    """For good: whoever serves it makes it anew."""
    path = node.mgpu.root / node.random.choice(SOCKETS)
    with suppress(FileNotFoundError):
        path.unlink()
    yield


@contextmanager
def file_removed(node: Node) -> Iterator[None]:
    path = node.random.choice(files(node))
    print(f"removed {path.name}")
    with removed(path):
        yield
