"""A node in use, whose parts are killed while containers work.

The judges are the containers themselves, which take any answer that is not the right one for a failure, and
the simulated card's own account.
"""

import mmap
import os
import random
import signal
import statistics
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oci_specs import paths
from sim.cards import Account
from tests.support import arbiter, host
from tests.support.arbiter import Arbiter
from tests.support.bundle import Bundle, bundle
from tests.support.programs import Programs, inside
from tests.support.started import Foreground
from tests.support.waiting import readable, until

MIB = 1 << 20
NS_PER_MS = 1_000_000
SEED = "MGPU_CHAOS_SEED"
# What a tenant's processes make at most, and what it may hold: some of what they ask for is refused.
PROCESSES, CAP_MIB = 3, 384
# Others are to find room on each card too.
PER_CARD = 12
RING_CALLS = 1 << 15
RING_BYTES = 8 + 16 * RING_CALLS
# How long the kernel and the card take at most to let go of what an ended process had.
SETTLE_S = 20.0


def seed(usual: int | None = None) -> int:
    """Of this run, which MGPU_CHAOS_SEED repeats as far as the machine's own timing lets it; printed either
    way. usual: without that, instead of one by chance.
    """
    usual = random.SystemRandom().randrange(1 << 32) if usual is None else usual
    chosen = int(os.environ.get(SEED) or usual)
    print(f"{SEED}={chosen}")
    return chosen


class Ring:
    """When each call of a container's began and was answered, as steadfast.c writes it; CLOCK_MONOTONIC."""

    def __init__(self, path: Path) -> None:
        with path.open("wb") as file:
            file.truncate(RING_BYTES)
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), RING_BYTES, prot=mmap.PROT_READ)

    @property
    def calls(self) -> int:
        return int(struct.unpack_from("=Q", self._map)[0])

    def since(self, first: int) -> list[tuple[int, int]]:
        """(begun, ended) of the calls from number `first` on, as far as they are still there. A call counts
        before its instants are written: until both are, the place has those of an earlier one.
        """
        last = self.calls
        found = (
            struct.unpack_from("=QQ", self._map, 8 + 16 * (i % RING_CALLS))
            for i in range(max(first, last - RING_CALLS // 2), last)
        )
        return [(begun, ended) for begun, ended in found if ended >= begun]

    def close(self) -> None:
        self._map.close()


@dataclass
class Tenant:
    """A container that works. seen: calls that were looked at before."""

    made: Bundle
    running: Foreground
    ring: Ring
    seen: int = 0

    @property
    def name(self) -> str:
        return self.made.container

    def said(self, word: str) -> str:
        """Its next line, which has to begin so."""
        line = self.running.line()
        assert line.startswith(word), f"{self.name}: {line}"
        return line

    def is_well(self) -> None:
        """It runs, and has not complained."""
        assert self.running.process.stdout is not None
        if readable(self.running.process.stdout, 0):
            raise AssertionError(f"{self.name}: {self.running.line()}")


@contextmanager
def tenant(mgpu: Arbiter, built: Programs, number: int, seed: int, **env: str) -> Iterator[Tenant]:
    """A container of steadfast.c's."""
    with host.home("ring") as folder:
        ring = Ring(folder / "ring")
        mounts: list[dict[str, Any]] = [
            built.oci_mount,
            {"destination": "/ring", "type": "bind", "source": str(folder), "options": ["rbind", "rw"]},
        ]
        card = str(number // PER_CARD)
        wishes = {"MGPU_MEMORY_MIB": str(CAP_MIB), "NVIDIA_VISIBLE_DEVICES": card, **env}
        command = [inside("steadfast"), str(seed + number), str(PROCESSES), str(CAP_MIB), "/ring/ring", card]
        with bundle(*command, env=wishes, mounts=mounts) as made, made.running(mgpu.runtime) as running:
            found = Tenant(made, running, ring)
            found.said("ready")
            yield found
        ring.close()


@dataclass
class Field:
    """The node, and the containers on it."""

    mgpu: Arbiter
    built: Programs
    random: random.Random
    tenants: list[Tenant] = field(default_factory=list)
    # From the death of a mgpud to the first answer to a call that was made after it, in ms.
    recoveries_ms: list[float] = field(default_factory=list)

    def kill_mgpud(self) -> int:
        """SIGKILL; returns when it is dead, by CLOCK_MONOTONIC in ns."""
        return end(self.mgpu.pid_of("mgpud"))

    def kill_both(self) -> int:
        """The holder and mgpud, as kill_mgpud(): neither lives long enough to give the other anything."""
        pids = [*self.mgpu.pids_of("holder"), *self.mgpu.pids_of("mgpud")]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        return max((end(pid) for pid in pids), default=time.monotonic_ns())

    def mark(self) -> None:
        """Calls up to now are of the time before."""
        for each in self.tenants:
            each.seen = each.ring.calls

    def first_answer_ns(self, after_ns: int) -> int | None:
        """When the first call was answered that was made after that; since the last mark()."""
        found = [
            ended for each in self.tenants for begun, ended in each.ring.since(each.seen) if begun > after_ns
        ]
        return min(found, default=None)

    def wait_for_answer(self, died_ns: int, timeout_s: float = 30.0) -> float:
        """Waits for the first answer after the mgpud's death, and notes how long it took, in ms."""
        until(
            lambda: self.first_answer_ns(died_ns) is not None,
            "a container is answered again",
            timeout_s=timeout_s,
            poll_s=0.005,
        )
        answered_ns = self.first_answer_ns(died_ns)
        assert answered_ns is not None
        self.recoveries_ms.append((answered_ns - died_ns) / NS_PER_MS)
        return self.recoveries_ms[-1]

    def all_answered(self, died_ns: int, timeout_s: float = 30.0) -> None:
        """Waits until each container was answered since: no call is stranded."""
        until(
            lambda: all(
                any(begun > died_ns for begun, _ in each.ring.since(each.seen)) for each in self.tenants
            ),
            "every container is answered again",
            timeout_s=timeout_s,
            poll_s=0.01,
        )

    def well(self) -> None:
        for each in self.tenants:
            each.is_well()

    def quiet(self) -> dict[str, int]:
        """Has all of them stand still; what each says that it holds, in MiB."""
        for each in self.tenants:
            each.running.tell("stop")
        return {each.name: int(each.said("still").split()[1]) for each in self.tenants}

    def go(self) -> None:
        for each in self.tenants:
            each.running.tell("go")
        for each in self.tenants:
            each.said("going")

    def judge(self) -> None:
        """Everybody stands still: the ledger is what the card says to the byte, and what each container says
        it has.
        """
        held = self.quiet()
        until(lambda: self.agree(held), "the card, the ledger and the containers agree", timeout_s=SETTLE_S)
        rows = {row["container_id"]: row for row in self.mgpu.containers()}
        for each in self.tenants:
            row = rows[each.name]
            assert row["state"] == "bound"
            assert row["unaccounted_bytes"] == 0
            for share in row["cards"]:
                assert share["used_bytes"] <= share["peak_bytes"] <= CAP_MIB * MIB, row
        self.go()

    def agree(self, held: dict[str, int]) -> bool:
        listing = self.mgpu.listing()
        account = self.mgpu.account()
        ledger = {row["container_id"]: row for row in listing["containers"]}
        return [card["used_bytes"] for card in listing["cards"]] == [
            card.used_bytes for card in account.cards
        ] and all(
            sum(share["used_bytes"] for share in ledger[name]["cards"]) == mib * MIB
            for name, mib in held.items()
        )

    def over_cap(self) -> None:
        """By the card's account, which is right also while there is no mgpud."""
        held = held_by(self.mgpu.account(), [each.name for each in self.tenants])
        assert all(bytes_ <= CAP_MIB * MIB for bytes_ in held.values()), held

    def served_once(self) -> None:
        """Never more than one mgpud has the lock; the kernel's table of locks says so (/proc/locks)."""
        of = os.stat(self.mgpu.root / "mgpud.lock")
        # Another mgpu's lock has a file system of its own, where it may have the same number.
        lock = f"{os.major(of.st_dev):02x}:{os.minor(of.st_dev):02x}:{of.st_ino}"
        holders = [
            line
            for line in Path("/proc/locks").read_text().splitlines()
            if "FLOCK" in line and "->" not in line and line.split()[5] == lock
        ]
        assert len(holders) <= 1, holders

    def report(self) -> str:
        found = sorted(self.recoveries_ms)
        calls = sum(each.ring.calls for each in self.tenants)
        if not found:
            return f"{calls} calls"
        return (
            f"{len(found)} recoveries, p50 {statistics.median(found):.0f} ms, p99 {percentile(found, 99):.0f} ms, "
            f"longest {found[-1]:.0f} ms; {calls} calls"
        )


def run_ns(mgpu: Arbiter, pid: int) -> int:
    """The first card's time that the process had."""
    card = mgpu.account().cards[0]
    groups = [*(group for one in card.engines for group in one.groups), *card.ended]
    return sum(group.run_ns for group in groups if group.tgid == pid)


def percentile(found: Sequence[float], percent: int) -> float:
    """Of sorted numbers: the least that so many percent do not exceed."""
    return found[min(len(found) - 1, -(-len(found) * percent // 100) - 1)]


def end(pid: int, number: int = signal.SIGKILL) -> int:
    """Kills a process; returns when it is dead, by CLOCK_MONOTONIC in ns."""
    pidfd = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(pidfd, number)
        readable(pidfd)
        return time.monotonic_ns()
    finally:
        os.close(pidfd)


def held_by(account: Account, names: Sequence[str]) -> dict[str, int]:
    """What the card counts to the processes of each container, in bytes; those that end at this moment are
    left out.
    """
    found = dict.fromkeys(names, 0)
    for card in account.cards:
        for file in card.files:
            with suppress(OSError):
                cgroup = Path(f"/proc/{file.tgid}/cgroup").read_text()
                for name in names:
                    if name in cgroup:
                        found[name] += file.bytes
    return found


@contextmanager
def one_installation() -> Iterator[None]:
    """Each mgpud that follows another has to be of the same build: where mgpu is installed anew meanwhile,
    that is the failure, whatever came of it.
    """

    def installed() -> int:
        return os.stat(paths.lib("libmgpu_engine.so")).st_mtime_ns

    before = installed()
    try:
        yield
    finally:
        assert installed() == before, "mgpu was installed anew under this run"


@contextmanager
def field_of(
    built: Programs,
    count: int,
    chosen: int,
    *,
    cards: str = "h200:1",
    config: str = "hold_ms = 100\n",
    **up: Any,
) -> Iterator[Field]:
    """mgpu, with so many containers that work. chosen: the seed."""
    with ExitStack() as stack:
        stack.enter_context(one_installation())
        mgpu = stack.enter_context(arbiter.running(cards, node_config=config, **up))
        found = Field(mgpu, built, random.Random(chosen))
        for number in range(count):
            qos = "online" if number % 2 else "offline"
            made = tenant(mgpu, built, number, chosen, MGPU_QOS=qos, MGPU_POLICY="native-burst-share")
            found.tenants.append(stack.enter_context(made))
        yield found
        for each in found.tenants:
            assert each.running.process.stdin is not None
            each.running.process.stdin.close()
        for each in found.tenants:
            each.said("end")
            assert each.running.process.wait(SETTLE_S) == 0, each.name
