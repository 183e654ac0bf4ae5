"""A node in a guest: its disks, a boot of them, and what is asked of it."""

import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from lab import initramfs, kernel_modules, machine, packages, qemu
from lab.guests import BOOT_S, BUSYBOX, NEEDED_BY_ROOT, SYSTEMD
from lab.hosts import disks, kernels
from lab.places import LAB, REPOSITORY

# What the guest's clock loses on a busy host.
PATIENCE = 6
STEP_S = 120
GUEST = "lab.hosts.guest"
QUICK = "/lab/lab/hosts/guest/quick.sh"
_CARRIED = ("lab/__init__.py", "lab/hosts/__init__.py", "lab/guest/*", "lab/hosts/guest/*")
_MOUNTS = """\
mount -t ext4 /dev/vda /root
mount -t ext4 -o ro /dev/vdb /root/project
mount -t tmpfs lab /root/lab
cp -a /lab/. /root/lab
mkdir -p /root/lib/modules/{release}
mount --bind /root/project/lib/modules/{release} /root/lib/modules/{release}
cp /lab/lab/hosts/guest/agent.service /root/etc/systemd/system/lab-agent.service
[ -e /root/etc/docker/daemon.json ] || cp /lab/lab/hosts/guest/daemon.json /root/etc/docker"""


class Failed(Exception):
    """What a step says, of one that failed in the guest."""


@dataclass(frozen=True)
class Node:
    """A node with its disks, which outlive its boots."""

    kernel: kernels.Kernel
    folder: Path
    root: Path

    @contextmanager
    def booted(self, name: str, start: str = SYSTEMD, *, log: Path | None = None) -> "Iterator[Guest]":
        """Until power is cut, at the block's end. log: of what the disk is told (write_log.py)."""
        folder = self.folder / name
        folder.mkdir()
        if log is not None:
            log.touch()
        release = self.kernel.release
        held = kernels.unpacked(self.kernel)
        archive = folder / "initramfs"
        archive.write_bytes(
            initramfs.made(
                BUSYBOX.read_bytes(),
                kernel_modules.in_order(held / release, NEEDED_BY_ROOT),
                list(_carried()),
                mounts=_MOUNTS.format(release=release),
                start=start,
            )
        )
        guest = qemu.Guest(
            kernel=held / "vmlinuz",
            initramfs=archive,
            disks=[
                qemu.Disk(self.root, writable=True, log=log),
                qemu.Disk(disks.brought(self.kernel)),
            ],
            cards=[],
            # In QEMU newer kernels lose the timer that each tick sets anew (lab/pairs.py).
            append="apparmor=1 highres=off",
            loglevel=4,
        )
        # A socket's path has to be short, wherever the repository lies.
        with TemporaryDirectory(prefix="mgpu-host-") as made:
            words = qemu.command(packages.qemu_root(), guest)
            programs = machine.Programs({}, words, Path(made) / "port")
            with machine.started(programs, folder, boot_s=BOOT_S) as there:
                yield Guest(there)


@dataclass(frozen=True)
class Guest:
    machine: machine.Machine

    def does(self, step: str, limit_s: float = STEP_S) -> None:
        """A function of lab/hosts/guest, such as "node:installed"; Failed."""
        asked: Mapping[str, object] = {"run": f"{GUEST}.{step}", "limit_s": limit_s}
        said = self.machine.ask(dict(asked), limit_s * PATIENCE)
        if said["failed"]:
            raise Failed(f"{step}: {said['failed'].strip().splitlines()[-1]}")

    def begins(self, step: str, limit_s: float = STEP_S) -> None:
        """The same, without waiting for its end."""
        self.machine.send({"run": f"{GUEST}.{step}", "limit_s": limit_s})


def fresh(kernel: kernels.Kernel, what: str) -> Node:
    """A node of its own for `what`; its logs stay in build/lab/hosts/logs."""
    folder = LAB / "hosts/logs" / f"{kernel.release}-{what}"
    folder.mkdir(parents=True, exist_ok=True)
    for old in sorted(folder.rglob("*"), reverse=True):
        old.rmdir() if old.is_dir() else old.unlink()
    return Node(kernel, folder, disks.root(folder))


def _carried() -> Iterator[tuple[str, int, bytes]]:
    for path in sorted(path for pattern in _CARRIED for path in REPOSITORY.glob(pattern)):
        if path.is_file():
            name = path.relative_to(REPOSITORY)
            yield f"lab/{name}", stat.S_IMODE(path.stat().st_mode), path.read_bytes()
