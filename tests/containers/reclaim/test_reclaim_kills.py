"""Kills of every part while memory gives way: a container runs with its data or is evicted with it, and
online gets what it asks for.
"""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from subprocess import DEVNULL, PIPE

import pytest

from oci_specs.refusal import Refusal
from sim import cards
from tests.support import arbiter
from tests.support.arbiter import Arbiter
from tests.support.lending import (
    CARD_MIB,
    LENDS,
    OFFLINE,
    Running,
    holder,
    keeper,
    rounds,
    started,
    taker,
    turn,
)
from tests.support.places import MGPU
from tests.support.processes import others_here
from tests.support.programs import Programs
from tests.support.waiting import until

SEED, KILLS = 15, 5
COPY_MIB_PER_MS = 2
CHECKPOINT = "mgpu-checkpoint"
# What is held takes half a second to copy. A call may take a fifth more than its copies, and a start of the
# helper's, which on a busy machine is told by calls that nothing is killed in.
HELD_MIB, TRIES, MOST, HELPER_S, KILL_AFTER_S = 1024, 5, 1.2, 0.15, 0.2
VICTIMS = ("mgpud",), (CHECKPOINT,), ("holder",), ("holder", "mgpud")


@contextmanager
def up(cards: str) -> Iterator[Arbiter]:
    """A copy takes some 200 ms, so that kills fall into all of its parts."""
    config = LENDS + "evict_wait_ms = 60000\n"
    options = [f"copy-mib-per-ms={COPY_MIB_PER_MS}"]
    with arbiter.running(cards, node_config=config, sim_options=options) as running:
        yield running
        arbiter.until_empty(running)


@pytest.fixture
def mgpu(private_host: None) -> Iterator[Arbiter]:
    with up("v100-16:1") as running:
        yield running


def pids(mgpu: Arbiter, program: str) -> list[int]:
    if program != CHECKPOINT:
        return mgpu.pids_of(program)
    found = []
    for pid in others_here():
        with suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].endswith(b"/mgpu-checkpoint"):
                found.append(pid)
    return found


def kill(mgpu: Arbiter, victims: tuple[str, ...]) -> None:
    """Neither of several lives long enough to give the other anything."""
    found = [pid for program in victims for pid in pids(mgpu, program)]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def resting_state(made: Running) -> str:
    def now() -> str:
        with suppress(Refusal):
            return made.reclaim
        return ""

    until(lambda: now() in ("running", "evicted"), "it is in one place")
    return now()


def judge(mgpu: Arbiter) -> None:
    """By the card's own account, to which the ledger comes."""

    def agree() -> bool:
        cards = mgpu.account().cards
        assert all(card.used_bytes <= CARD_MIB << 20 for card in cards)
        return mgpu.used_bytes() == [card.used_bytes for card in cards]

    until(agree, "ledger and GPU agree")


@dataclass(frozen=True)
class Card:
    """A card that online takes all of, and gives back, while parts of mgpu are killed."""

    mgpu: Arbiter
    online: Running
    chance: random.Random

    def moves(self, end: Callable[[], object]) -> None:
        self.online.program.tell()
        time.sleep(self.chance.uniform(0, 0.7))
        end()
        assert self.online.program.line().split()[:2] in (["took", "0"], ["gave", "0"])

    def evicts(self, offline: Running, *victims: str) -> None:
        """And lets it come back."""
        for _ in ("takes", "gives"):
            self.moves(lambda: kill(self.mgpu, victims))
            resting_state(offline)
            judge(self.mgpu)
        until(lambda: resting_state(offline) == "running", "it runs again")
        rounds(offline)

    def outlives(self, offline: Running) -> None:
        """Ends the container on its way off the card or back."""
        ends: list[Callable[[], object]] = [lambda: None, lambda: None]
        ends[self.chance.randrange(2)] = lambda: offline.call("kill", "KILL")
        for end in ends:
            self.moves(end)
        until(lambda: len(self.mgpu.containers()) == 1, "nothing is left of it")
        judge(self.mgpu)


def times(number: int, timeout_s: int, *marks: pytest.MarkDecorator) -> object:
    return pytest.param(number, marks=[pytest.mark.timeout(timeout_s), *marks])


@pytest.mark.parametrize("times", [times(3, 600), times(40, 3600, pytest.mark.soak)])
def test_no_kill_loses_data_or_memory(mgpu: Arbiter, built: Programs, times: int) -> None:
    with taker(mgpu, built) as online:
        card = Card(mgpu, online, random.Random(SEED))
        for _ in range(times):
            with keeper(mgpu, built, "2") as offline:
                for victims in VICTIMS:
                    card.evicts(offline, *victims)
                card.outlives(offline)


def test_request_by_hand_has_an_end_when_mgpud_has(mgpu: Arbiter, built: Programs) -> None:
    with keeper(mgpu, built, "2") as offline:
        name = offline.bundle.container
        for _ in range(KILLS):
            argv: list[str | Path] = [MGPU, "evict", "--root", mgpu.root, name]
            with subprocess.Popen(argv, stdout=DEVNULL, stderr=PIPE, text=True) as asks:
                until(lambda: offline.reclaim == "evicting", "it is on its way")
                kill(mgpu, ("mgpud",))
                _, said = asks.communicate(timeout=60)
            if resting_state(offline) == "evicted":
                assert asks.returncode == 0, said
                mgpu.mgpu("resume", name)
            else:
                *progress, why = said.splitlines()
                assert all(line.startswith("evicting: ") for line in progress), said
                assert "mgpud knows of no request to evict it" in why
            rounds(offline)


def test_nobody_waits_for_a_stopped_helper_for_ever(mgpu: Arbiter, built: Programs) -> None:
    with keeper(mgpu, built) as first, keeper(mgpu, built) as second:
        mgpu.mgpu("evict", first.bundle.container)
        argv: list[str | Path] = [MGPU, "resume", "--root", mgpu.root, first.bundle.container]
        with subprocess.Popen(argv, stdout=DEVNULL) as resumes:
            until(lambda: first.reclaim == "restoring", "it is on its way")
            for pid in pids(mgpu, CHECKPOINT):
                os.kill(pid, signal.SIGSTOP)
            mgpu.mgpu("evict", second.bundle.container)
            assert first.reclaim == "restoring"
            assert resumes.wait(60) == 0
        rounds(first)
        mgpu.mgpu("resume", second.bundle.container)
        for pid in pids(mgpu, CHECKPOINT):
            os.kill(pid, signal.SIGSTOP)
        with taker(mgpu, built) as online:
            turn(online)
            first.until("evicted")
            second.until("evicted")


def waited(mgpu: Arbiter, online: Running, holds: Running, kills: int) -> tuple[float, float]:
    """What a call of online's took beside so many kills of the helper in its first copy, and all copies."""
    admin = mgpu.root / "sim" / "admin.sock"
    entry, began_s = cards.timeline(admin, 0).next, time.monotonic()
    online.program.tell()
    for _ in range(kills):
        time.sleep(KILL_AFTER_S)
        kill(mgpu, (CHECKPOINT,))
    assert online.program.line().split()[:2] == ["took", "0"]
    took_s, spans = time.monotonic() - began_s, cards.timeline(admin, 0, entry).spans
    copied_ns = sum(one.end_ns - one.start_ns for one in spans if one.tgid == holds.row["pid"])
    return took_s, copied_ns / 1e9


def test_online_waits_for_the_copies_whatever_becomes_of_the_helper(mgpu: Arbiter, built: Programs) -> None:
    """Two kills on the way off the card; one on the way back, which has moved nothing and gives way."""
    offline = {**OFFLINE, "mgpu.dev/memory-mib": str(2 * HELD_MIB)}
    with started(mgpu, built, offline, *holder(HELD_MIB)) as holds, taker(mgpu, built) as online:
        assert holds.program.line() == "held 0"
        plain: list[tuple[float, float]] = []
        evicting: list[tuple[float, float]] = []
        restoring: list[tuple[float, float]] = []
        for _ in range(TRIES):
            for kills, found in ((0, plain), (2, evicting)):
                found.append(waited(mgpu, online, holds, kills))
                turn(online)
                holds.until("restoring")
                if kills:
                    restoring.append(waited(mgpu, online, holds, 1))
                    turn(online)
                until(lambda: resting_state(holds) == "running", "it runs again")
    print(plain, evicting, restoring)
    helper_s = max(HELPER_S, 2 * median(took_s - copied_s for took_s, copied_s in plain))
    assert median(took_s - MOST * copied_s for took_s, copied_s in evicting) < helper_s
    assert median(took_s for took_s, _ in restoring) < KILL_AFTER_S + helper_s


@pytest.fixture
def two(private_host: None) -> Iterator[Arbiter]:
    with up("v100-16:2") as running:
        yield running


def others(mgpu: Arbiter, made: Running) -> tuple[str, str]:
    """The card where it is, and the other one."""
    one, other = (card["uuid"] for card in mgpu.listing()["cards"])
    return (one, other) if made.row["cards"][0]["uuid"] == one else (other, one)


@pytest.mark.parametrize("program", ["mgpud", "mgpu-checkpoint"])
def test_kill_on_the_way_to_another_card_leaves_it_where_it_is_said_to_be(
    two: Arbiter, built: Programs, program: str
) -> None:
    chance = random.Random(SEED)
    with keeper(two, built, "2") as offline:
        name, seen = offline.bundle.container, set()
        for _ in range(KILLS):
            before = rounds(offline)
            two.mgpu("evict", name)
            was, asked = others(two, offline)
            argv: list[str | Path] = [MGPU, "resume", "--root", two.root, name, "--gpus", asked]
            with subprocess.Popen(argv, stdout=DEVNULL, stderr=DEVNULL) as resumes:
                time.sleep(chance.uniform(0.2, 1.2))
                kill(two, (program,))
                resumes.wait(60)
            state = resting_state(offline)
            there, _ = others(two, offline)
            seen.add((state, there == asked))
            if state == "evicted" and offline.row["reclaim"]["by_hand"]:
                two.mgpu("resume", name)
            until(lambda: resting_state(offline) == "running", "it runs again")
            assert rounds(offline) > before
            at, free = others(two, offline)
            assert at in (was, asked)
            used = {card["uuid"]: card["used_bytes"] for card in two.listing()["cards"]}
            assert (used[at] > 0, used[free]) == (True, 0)
            assert two.used_bytes() == [card.used_bytes for card in two.account().cards]
        assert ("running", True) in seen, seen
