"""Attacks that are composed from tables: a call, a race, a way that files are passed, and what becomes of
mgpud meanwhile. The judge is the card's own account: what it has beside mgpud's ledger has to be gone, with
the container that has it, before long.
"""

import ctypes
import itertools
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sim.cards import CardAccount, FileUse
from tests.hostile.siege import MIB, Attempt, Siege
from tests.sim import card_protocol as protocol
from tests.support import arbiter
from tests.support.programs import Programs
from tests.support.waiting import until

# Words of tests/programs/hostile/composed.c.
CALLS = ("client", "context", "pages", "heap", "memory")
RACES = ("none", "to-and-fro", "late", "other-file")
# "mortal": by a child that is killed before its answer is written, and whose number another process takes.
PASSINGS = ("itself", "thread", "child", "message", "mortal")
# AddressSanitizer lays out this process's memory, so that the address of the killed one's is often taken.
CAN_STAND_IN = "LD_PRELOAD" not in os.environ
# A process without a grant that has the file. Nothing sees its calls but the driver. It makes memory in the
# tenant's client, in a client of its own, in one whose maker has died, or contexts there.
STRANGERS = ("nobody", "memory", "client", "heir", "contexts")
DEAD = (1 << 22) - 1
RESTARTS = (False, True)

CAP_MIB = 2048
# What a call made that was changed into another ends its container within a second. What a stranger made
# does so after two looks at all processes, which are further apart where a look takes long. The rest is a
# machine's that does other things too.
OVER_MAX_S, STRANGERS_MAX_S = 4.0, 14.0
ATTACK_MAX_S = 30.0
LOOK_S = 0.05
PIDFD_GETFD, CLONE3 = 438, 435
PAGE, MAP_NEW = 4096, 0x100022  # MAP_FIXED_NOREPLACE, private, of no file
# How long mgpud stands before it writes into a caller, and by when it has done so twice.
BEFORE_WRITES_MS, WRITTEN_S = 30, 0.15


@dataclass(frozen=True)
class Attack:
    """One of each table. seed: of the rest, in the program."""

    call: str
    race: str
    passing: str
    stranger: str
    restart: bool
    seed: int

    @property
    def over_max_s(self) -> float:
        return OVER_MAX_S if self.stranger == "nobody" else STRANGERS_MAX_S


def composed(seed: int) -> Iterator[Attack]:
    """All combinations, and all again with other seeds, in an order that the seed gives."""
    chosen = random.Random(seed)
    while True:
        every = list(itertools.product(CALLS, RACES, PASSINGS, STRANGERS, RESTARTS))
        chosen.shuffle(every)
        for words in every:
            yield Attack(*words, chosen.randrange(1 << 32))


@dataclass
class Judge:
    """How long the card has had more than the ledger, and how much."""

    siege: Siege
    since: float = 0.0
    worst_bytes: int = 0
    longest_s: float = 0.0

    def look(self, ended: bool) -> CardAccount:
        # What is made is in the ledger first, so it is read last.
        [card] = self.siege.mgpu.account().cards
        with suppress(OSError, ValueError):
            over = card.used_bytes - self.siege.mgpu.used_bytes()[0]
            self.worst_bytes = max(self.worst_bytes, over)
            now = time.monotonic()
            if over <= 0 or ended:
                self.since = 0.0
            else:
                self.since = self.since or now
                self.longest_s = max(self.longest_s, now - self.since)
        return card


def client_of(siege: Siege, card: CardAccount, cap: Attempt) -> FileUse | None:
    pids = {cap.row["pid"], *(process["pid"] for process in cap.row["processes"])}
    return next((one for one in card.files if one.tgid in pids), None)


@contextmanager
def files_of(pid: int) -> Iterator[None]:
    """Has the open files of another process, as one may that shares its pid namespace or was sent them."""
    held: list[int] = []
    pidfd = os.pidfd_open(pid)
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            if int(name) <= 2:  # what its runtime waits for
                continue
            taken = ctypes.CDLL(None).syscall(PIDFD_GETFD, pidfd, int(name), 0)
            held += [taken] if taken >= 0 else []
        yield
    finally:
        for fd in (pidfd, *held):
            os.close(fd)


def as_a_stranger(siege: Siege, what: str, use: FileUse, client: int) -> None:
    """What the driver does for a process without a filter that has the file: the socket stands for the
    kernel's way there.
    """
    memory = protocol.memory_params(512 * MIB)
    with protocol.Connection(siege.mgpu.root / "sim" / "card.sock") as card:
        if what == "memory":
            card.alloc(use.file, client, 0xD0, 0x7001, protocol.MEMORY, memory, use.tgid)
            return
        maker = DEAD if what == "heir" else os.getpid()
        status, root, _ = card.alloc(use.file, 0, 0, 0, protocol.ROOT_CLIENT, b"", maker)
        assert status == protocol.OK
        # No subdevice: the driver lists nobody without one.
        card.alloc(use.file, root, root, 0xD0, protocol.DEVICE, protocol.device_params(0), maker)
        if what == "contexts":
            card.alloc(use.file, root, 0xD0, 0x7001, protocol.CHANNEL_GROUP, protocol.group_params(), maker)
        else:
            card.alloc(use.file, root, 0xD0, 0x7001, protocol.MEMORY, memory, maker)


@contextmanager
def late_writes(mgpud: int) -> Iterator[None]:
    writes = "pwrite64,process_vm_writev"
    inject = f"inject={writes}:delay_enter={BEFORE_WRITES_MS * 1000}"
    argv = ["strace", "-f", "-o", os.devnull, "-e", f"trace={writes}", "-e", inject, "-p", str(mgpud)]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as tracer:
        assert tracer.stderr is not None
        assert "attached" in tracer.stderr.readline()
        try:
            yield
        finally:
            tracer.terminate()


@contextmanager
def victim(number: int, address: int) -> Iterator[Callable[[], bool]]:
    """A process of that number, once it is free, which has memory of its own there: whether it is written."""
    libc = ctypes.PyDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    low = address // PAGE * PAGE
    assert libc.mmap(low, 2 * PAGE, 3, MAP_NEW, -1, 0) == low, f"{low:#x} is taken here"
    tid = (ctypes.c_int * 1)(number)
    #  flags, pidfd, two tids; SIGCHLD; stack and its size, tls; the number to take
    args = (ctypes.c_uint64 * 10)(0, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, ctypes.addressof(tid), 1)
    pid = -1
    end = time.monotonic() + 1
    while pid < 0 and time.monotonic() < end:
        pid = libc.syscall(CLONE3, args, ctypes.sizeof(args))
    while pid == 0:
        libc.pause()

    def written() -> bool:
        with open(f"/proc/{pid}/mem", "rb") as memory:
            memory.seek(low)
            return any(memory.read(2 * PAGE))

    try:
        yield written if pid > 0 else bool
    finally:
        libc.munmap(ctypes.c_void_p(low), 2 * PAGE)
        if pid > 0:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


@dataclass
class Run:
    """One attack under way, by the lines that its program says."""

    siege: Siege
    attack: Attack
    container: Attempt
    judge: Judge
    client: int = 0
    rounds: int = 0
    ended: bool = False
    deaths: int = 0
    written: int = 0
    first: int = 0  # process
    has_visited: bool = False

    def kill_it(self, address: int) -> None:
        """Again where mgpud has died meanwhile."""
        for _ in range(3):
            with suppress(AssertionError, OSError, ValueError):
                self.kill_at_a_call(address)
                return
            time.sleep(1)

    def kill_at_a_call(self, address: int) -> None:
        """When its number is another process's, mgpud has looked for the caller and has yet to write."""
        self.first = self.first or int(self.container.row["pid"])
        [child] = map(int, Path(f"/proc/{self.first}/task/{self.first}/children").read_text().split())
        with late_writes(self.siege.mgpu.pid_of("mgpud")):
            time.sleep(2 * BEFORE_WRITES_MS / 1000)
            os.kill(child, signal.SIGKILL)
            with victim(child, address) as is_written:
                time.sleep(WRITTEN_S)
                self.written += is_written()
                self.deaths += 1

    def hear(self) -> None:
        """All that it says."""
        with suppress(ValueError, OSError, AssertionError):
            while not self.ended:
                word, *rest = self.container.line().split() or [""]
                if word == "client":
                    self.client = int(rest[0])
                self.rounds += word == "round"
                if word == "mortal":
                    self.kill_it(int(rest[0]))
                self.ended = word in ("done", "bad")

    @property
    def visit_is_due(self) -> bool:
        wanted = self.attack.stranger != "nobody" and not self.has_visited
        return wanted and bool(self.client) and self.rounds > 1

    def go(self) -> None:
        with ExitStack() as files:
            self._go(files)

    def _go(self, files: ExitStack) -> None:
        threading.Thread(target=self.hear, daemon=True).start()
        restart = self.attack.restart
        began = time.monotonic()
        while time.monotonic() - began < ATTACK_MAX_S:
            time.sleep(LOOK_S)
            # What another process keeps by a file of an ended container is no container's any more.
            card = self.judge.look(self.container.has_ended())
            if self.container.has_ended():
                return
            if restart and self.rounds:
                self.siege.mgpu.kill("mgpud")
                restart = False
                until(lambda: bool(self.siege.mgpu.pids_of("mgpud")), "there is a mgpud")
            if self.visit_is_due:
                with suppress(OSError, IndexError, ValueError):
                    if use := client_of(self.siege, card, self.container):
                        files.enter_context(files_of(use.tgid))
                        as_a_stranger(self.siege, self.attack.stranger, use, self.client)
                        self.has_visited = True
                        # What is in the tenant's own client is found without the stranger.
                        if self.attack.stranger == "memory":
                            files.close()
                # The judge has yet to see what it made.
                continue
            if (self.ended and not self.judge.since) or self.judge.longest_s > self.attack.over_max_s:
                return


def found_by(siege: Siege, attack: Attack) -> str | None:
    """What the card has that nobody pays for; None: nothing for longer than a moment."""
    judge = Judge(siege)
    words = (attack.call, attack.race, attack.passing, str(attack.seed))
    with siege.attempt("composed", *words, cap_mib=CAP_MIB) as container:
        run = Run(siege, attack, container, judge)
        run.go()
        missed = run.visit_is_due and not container.has_ended()
    if attack.passing == "mortal" and not run.deaths and CAN_STAND_IN:
        return f"{attack}: no caller has died"
    if missed:
        return f"{attack}: no stranger has come"
    if run.written:
        return f"{attack}: an answer is in another process's memory, {run.written} times"
    if judge.longest_s > attack.over_max_s:
        return f"{attack}: {judge.worst_bytes // MIB} MiB beside the ledger for {judge.longest_s:.1f} s"
    until(lambda: len(siege.mgpu.containers()) == 1, "its grant is back")
    until(lambda: siege.mgpu.used_bytes() == [c.used_bytes for c in siege.mgpu.account().cards], "all agree")
    return None


@contextmanager
def laid(built: Programs) -> Iterator[Siege]:
    """A call that only its caller can make waits here between the look at it and the driver's own."""
    with (
        arbiter.running("h200:1", sim_options=["reread-us=1000"]) as mgpu,
        built.bundle("neighbour", env={"MGPU_MEMORY_MIB": "256"}) as made,
        made.running(mgpu.runtime) as neighbour,
    ):
        assert neighbour.line() == "ready"
        yield Siege(mgpu, built, neighbour)


def attacked(built: Programs, seconds: float, seed: int) -> tuple[int, list[str]]:
    """How many attacks there were, and what was found."""
    until_s = time.monotonic() + seconds
    tried, found = 0, []
    with laid(built) as siege:
        for attack in composed(seed):
            if time.monotonic() > until_s:
                break
            tried += 1
            if said := found_by(siege, attack):
                found.append(said)
            siege.neighbour_is_well()
    return tried, found
