"""The part of the machine that engine tests see as theirs: nothing they do shows outside, or stays."""

import os
import secrets
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from mgpu_cli import kernel
from tests.support.waiting import until

CGROUPS = Path("/sys/fs/cgroup")
_private = False


def become_private() -> None:
    """Move this process, for good, into a mount namespace with a /run of its own.

    Engines put sockets, shims' state and runtimes' state below /run whatever they are told. On a machine with
    the hybrid layout of cgroups the unified mount is hidden, since crun refuses that layout.
    """
    global _private
    if _private:
        return
    kernel.private_mounts()
    kernel.mount("tmpfs", Path("/run"), "tmpfs", flags=kernel.MS_NOSUID, data="mode=0755")
    if (CGROUPS / "memory").is_dir():
        kernel.mount("tmpfs", CGROUPS / "unified", "tmpfs")
    _private = True


@contextmanager
def home(name: str) -> Iterator[Path]:
    """A new directory with a short name, for the kernel takes 107 bytes of a socket's path.

    Its name also serves as that of a containerd namespace or of a cgroup: letters, digits and single dashes.
    """
    # In memory where there is a /run of our own: engines sync every file of an image to the disk.
    path = Path("/run" if _private else "/tmp", f"mgpu-{name}-{secrets.token_hex(4)}")
    path.mkdir(mode=0o700)
    try:
        yield path
    finally:
        unmount_below(path)
        shutil.rmtree(path)


def unmount_below(path: Path) -> None:
    """Take away every mount at or below path, the latest first."""
    for target in reversed(mounts_below(path)):
        with suppress(FileNotFoundError):
            kernel.unmount(target)


def mounts_below(path: Path) -> list[Path]:
    """Mount points at or below path, in the order they were mounted."""
    points = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        point = Path(line.split(" ")[4].encode().decode("unicode_escape"))
        if point.is_relative_to(path):
            points.append(point)
    return points


def remove_cgroups(name: str) -> None:
    """Kill what is in the cgroup `name`, a path below the hierarchies' roots, and remove it with all below
    it.
    """
    roots = [root for root in [CGROUPS, *CGROUPS.iterdir()] if (root / "cgroup.procs").exists()]
    tops = [root / name for root in roots if (root / name).is_dir()]
    until(lambda: not any(_emptied(top) for top in tops), f"the cgroups {name} are empty")
    for top in tops:
        for folder, _, _ in os.walk(top, topdown=False):
            with suppress(FileNotFoundError):
                os.rmdir(folder)


def _emptied(top: Path) -> bool:
    """Whether there was a process at or below top, which has been sent SIGKILL."""
    found = False
    for procs in top.rglob("cgroup.procs"):
        with suppress(OSError):
            for pid in procs.read_text().split():
                found = True
                os.kill(int(pid), signal.SIGKILL)
    return found


@contextmanager
def own(*targets: Path) -> Iterator[None]:
    """What is written to these folders goes to memory, and is gone afterwards."""
    with home("own") as base, ExitStack() as mounted:
        for target in targets:
            layers = base / target.name
            for name in ("upper", "work"):
                (layers / name).mkdir(parents=True)
            below = f"lowerdir={target},upperdir={layers / 'upper'},workdir={layers / 'work'}"
            kernel.mount("overlay", target, "overlay", data=below)
            mounted.callback(kernel.unmount, target)
        yield


@contextmanager
def overlay(below: Path, name: str) -> Iterator[Path]:
    """A writable view of the directory `below`, which stays as it is."""
    with home(name) as base:
        for part in ("changes", "work", "rootfs"):
            (base / part).mkdir()
        kernel.mount(
            "overlay",
            base / "rootfs",
            "overlay",
            data=f"lowerdir={below},upperdir={base / 'changes'},workdir={base / 'work'}",
        )
        yield base / "rootfs"
