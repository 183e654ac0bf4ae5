"""What a day brings to a busy node, in minutes: at its end mgpu holds as much of everything as at its
beginning.
"""

import os
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from runtime_hook import holder
from tests.chaos import field as fields
from tests.chaos.field import Field
from tests.chaos.passers_by import PassersBy
from tests.support import arbiter, scrape
from tests.support.arbiter import Arbiter, until_empty
from tests.support.brief import Nursery, nursery
from tests.support.programs import Programs
from tests.support.waiting import until

# Of descriptors, threads, mappings and files on disk.
LIVES_PER_LEAKED = 100
# The table of open files grows by steps (journal/store.c), when more are open at once than ever before.
JOURNAL_STEP_BYTES = 64 << 10
# Tables of mgpud's that have their size from the start, and take their memory as they are written: the
# scheduler's last events (loop/events.h), and where an open file is found by its number and by its inode's
# (account/files.h). Both numbers only rise, the kernel's with every pipe and socket of the machine.
EVENTS_KEPT, EVENT_BYTES = 1 << 16, 48
FILE_BUCKETS, BUCKET_BYTES, FILES_A_LIFE = 1 << 19, 4, 8
# What is read from procfs while threads of a moment ago still end: the least of so many looks.
LOOKS, LOOK_S = 8, 0.1
# Of 16 places of a GPU.
PLACES_TAKEN = 8
KINDS = ("descriptors", "threads", "mappings", "files")


@dataclass(frozen=True)
class Size:
    """lives: containers that come and go under one mgpud, after warm_up of them, and as many before that
    which see others killed. leaked_bytes: what of mgpud's and of the holder's own memory may stay of each. A
    heap takes some thousands of lives to find its size.

    A day of a node that is busy is 10,000 of them, one in nine seconds, with a `mgpu ps` for each, a scrape
    for every second one, which is one in 17 s, and a live change for every tenth; a mgpud that is killed
    every hour; and some hundreds that a runtime starts, with hooks, cgroups and namespaces.
    """

    lives: int
    warm_up: int
    kills: int
    containers: int
    leaked_bytes: int


DAY = Size(lives=10_000, warm_up=2500, kills=24, containers=300, leaked_bytes=100)
MINUTES = Size(lives=500, warm_up=120, kills=2, containers=3, leaked_bytes=3000)


@dataclass(frozen=True)
class Holdings:
    """Resources of a process. memory: bytes of its own, of no other process and no file. mappings: of files
    and devices. Heaps and stacks are as many as there were ever threads at once, and count by their bytes.
    """

    memory: int
    descriptors: int
    threads: int
    mappings: int
    files: int = 0


def holdings(pid: int, *folders: Path) -> Holdings:
    process = Path(f"/proc/{pid}")
    [memory] = [
        int(line.split()[1]) << 10
        for line in (process / "smaps_rollup").read_text().splitlines()
        if line.startswith("Anonymous:")
    ]
    return Holdings(
        memory=memory,
        descriptors=len(os.listdir(process / "fd")),
        threads=len(os.listdir(process / "task")),
        mappings=sum(line.split()[4] != "0" for line in (process / "maps").read_text().splitlines()),
        files=sum(len(os.listdir(folder)) for folder in folders),
    )


def listeners(pid: int) -> int:
    """How many seccomp listeners the process has open."""
    found = 0
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            found += "seccomp" in str(fd.readlink())
    return found


def least(look: Callable[[], Holdings]) -> Holdings:
    found = [look()]
    for _ in range(LOOKS - 1):
        time.sleep(LOOK_S)
        found.append(look())
    return Holdings(*(min(getattr(one, name) for one in found) for name in Holdings.__dataclass_fields__))


def journal_bytes(mgpu: Arbiter) -> int:
    return sum(path.stat().st_blocks * 512 for path in (mgpu.root / "journal").iterdir())


def next_inode() -> int:
    """Of those that pipes and sockets get."""
    ends = os.pipe()
    try:
        return os.fstat(ends[0]).st_ino
    finally:
        for end in ends:
            os.close(end)


@dataclass(frozen=True)
class Node:
    """Everything, with no container there."""

    mgpud: Holdings
    holder: Holdings
    journal: int
    events: int
    lives: int
    inode: int

    @classmethod
    def of(cls, mgpu: Arbiter, events: int, lives: int) -> "Node":
        until_empty(mgpu)
        until(lambda: holder.status(mgpu.root / "holder.sock").listeners == 0, "no listener is left")
        until(lambda: mgpu.ask("health")["listeners"] == 0, "none is served")
        folders = [mgpu.root / name for name in ("journal", "grants")]
        mgpud, keeper = mgpu.pid_of("mgpud"), mgpu.pid_of("holder")
        # mgpud's own copies, for a holder that comes back, are looked through every few seconds.
        until(lambda: not listeners(mgpud), "mgpud has none either")
        return cls(
            mgpud=least(lambda: holdings(mgpud, *folders)),
            holder=least(lambda: holdings(keeper)),
            journal=journal_bytes(mgpu),
            events=events,
            lives=lives,
            inode=next_inode(),
        )


def taken_bytes(before: Node, after: Node) -> int:
    """By mgpud's tables in between, at most."""
    events = min(after.events, EVENTS_KEPT) - min(before.events, EVENTS_KEPT)
    risen = (after.inode - before.inode, FILES_A_LIFE * (after.lives - before.lives))
    return events * EVENT_BYTES + sum(min(numbers, FILE_BUCKETS) * BUCKET_BYTES for numbers in risen)


class Day:
    """mgpu, and what is asked of it."""

    def __init__(self, mgpu: Arbiter, births: Nursery) -> None:
        self.mgpu = mgpu
        self._births = births
        self._since = 0

    def begin(self) -> None:
        """Metrics are the last thing that a mgpud has; the socket of the one before may be there still."""

        def scraped() -> bool:
            with suppress(OSError):
                return bool(scrape.text_at(self.mgpu.root / "metrics.sock"))
            return False

        until(scraped, "metrics are served")

    def live(self, count: int) -> None:
        for _ in range(count):
            self._one(self._births.lives)

    def _one(self, number: int) -> None:
        # Those that have ended give their places back some time after, on a busy machine later.
        until(lambda: len(self.mgpu.containers()) < PLACES_TAKEN, "there is a place")
        life = self._births.begin()
        life.work()
        self.mgpu.listing()
        if number % 2 == 0:
            scrape.text_at(self.mgpu.root / "metrics.sock")
        if number % 5 == 0:
            self.events()
        if number % 10 == 0:
            self.mgpu.ask("set", container=life.name, memory_mib=512)
        life.end()

    def events(self) -> int:
        """How many there have been, up to now; those since the last time are read."""
        self._since = int(self.mgpu.ask("timeline", since=self._since)["next"])
        return self._since

    def node(self) -> Node:
        return Node.of(self.mgpu, self.events(), self._births.lives)

    def kill_mgpud(self) -> None:
        fields.end(self.mgpu.pid_of("mgpud"))
        self._since = 0
        until(lambda: bool(self.mgpu.ask("health")), "the next one serves")
        self.begin()


def judge(what: str, before: Holdings, after: Holdings, lives: int, may: int, taken: int = 0) -> list[str]:
    """What has grown too much. may: bytes that may stay of each life, besides those that tables have
    taken."""
    leaked = (after.memory - before.memory - taken) / lives
    print(f"{what}: {leaked:.1f} bytes a life beside {taken} of its tables, {before} to {after}")
    found = [f"{what} leaks {leaked:.0f} bytes a life"] if leaked > may else []
    for name in KINDS:
        more = getattr(after, name) - getattr(before, name)
        if more * LIVES_PER_LEAKED >= lives:
            found.append(f"{what} leaks {name}: {more} in {lives} lives")
    return found


@pytest.mark.parametrize(
    "size", [MINUTES, pytest.param(DAY, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])]
)
def test_mgpud_does_not_grow(built: Programs, size: Size) -> None:
    with (
        arbiter.running("h200:1", node_config="hold_ms = 20\n") as mgpu,
        nursery(mgpu, built) as births,
    ):
        day = Day(mgpu, births)
        day.begin()
        day.live(size.warm_up)
        morning = day.node()
        with PassersBy(Field(mgpu, built, random.Random(0)), 1) as containers:
            for _ in range(size.kills):
                day.live(size.warm_up // size.kills)
                day.kill_mgpud()
            while containers.count < size.containers:
                day.live(10)
        # Its memory is that of this mgpud alone.
        day.live(size.warm_up)
        noon = day.node()
        day.live(size.lives)
        evening = day.node()
        lives = births.lives
    may, taken = size.leaked_bytes, taken_bytes(noon, evening)
    grown = judge("mgpud", noon.mgpud, evening.mgpud, size.lives, may, taken)
    grown += judge("holder", morning.holder, evening.holder, lives - size.warm_up, may)
    grown += [
        f"the next mgpud has other {name} than the first: {morning.mgpud} and {noon.mgpud}"
        for name in ("descriptors", "threads", "files")
        if abs(getattr(morning.mgpud, name) - getattr(noon.mgpud, name)) > 2
    ]
    print(
        f"journal: {morning.journal} to {evening.journal} bytes; {lives} lives, {containers.count} by runc"
    )
    if evening.journal > morning.journal + JOURNAL_STEP_BYTES:
        grown.append(f"the journal grows: {morning.journal} to {evening.journal} bytes")
    assert grown == []
