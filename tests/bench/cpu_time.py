"""The processor time of everything that is started from here, and of the containers it makes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support import host

NS_PER_MS = 1e6
US_PER_MS = 1e3


@dataclass(frozen=True)
class CpuTime:
    """A cgroup that this process and its children are in. Container runtimes leave it for the containers'
    own.
    """

    folder: Path

    def used_ms(self, containers: str) -> float:
        """So far, with the containers' below the cgroup of that name."""
        beside = self.folder.parent / containers
        beside.mkdir(exist_ok=True)
        return _used_ms(self.folder) + _used_ms(beside)


@contextmanager
def counted() -> Iterator[CpuTime]:
    """Until the end of the block. What is started in it has to end in it."""
    root = _hierarchy()
    folder = root / f"mgpu-bench-{os.getpid()}"
    folder.mkdir()
    before = _own(root)
    (folder / "cgroup.procs").write_text("0")
    try:
        yield CpuTime(folder)
    finally:
        (before / "cgroup.procs").write_text("0")
        host.remove_cgroups(folder.name)


def _hierarchy() -> Path:
    old = host.CGROUPS / "cpuacct"
    return old if old.is_dir() else host.CGROUPS


def _own(root: Path) -> Path:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if (controllers == "" and root == host.CGROUPS) or "cpuacct" in controllers.split(","):
            return root / path.lstrip("/")
    raise AssertionError("this process is in no cgroup that counts processor time")


def _used_ms(folder: Path) -> float:
    old = folder / "cpuacct.usage"
    if old.exists():
        return int(old.read_text()) / NS_PER_MS
    told = dict(line.split() for line in (folder / "cpu.stat").read_text().splitlines())
    return int(told["usage_usec"]) / US_PER_MS
