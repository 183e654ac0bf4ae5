"""Whatever is killed while memory gives way, a container runs with its data or is evicted with it."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from oci_specs.refusal import Refusal
from tests.support import arbiter
from tests.support.arbiter import Arbiter
from tests.support.lending import CARD_MIB, Running, keeper, rounds, taker, turn
from tests.support.processes import others_here
from tests.support.programs import Programs
from tests.support.waiting import until

CONFIG = "offline_overcommit = true\nrestore_hold_ms = 20\nevict_wait_ms = 60000\n"
SEED, KILLS = 15, 5


@pytest.fixture
def mgpu(private_host: None) -> Iterator[Arbiter]:
    # A copy takes some 200 ms, so that kills fall into all of its parts.
    options = ["copy-mib-per-ms=2"]
    with arbiter.running("v100-16:1", node_config=CONFIG, sim_options=options) as running:
        yield running
        arbiter.until_empty(running)


def kill(mgpu: Arbiter, program: str) -> None:
    """mgpud, or its mgpu-checkpoint while there is one."""
    for pid in others_here():
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if program == "mgpu-checkpoint" and words[0].endswith(b"/mgpu-checkpoint"):
                os.kill(pid, signal.SIGKILL)
    for pid in mgpu.pids_of("mgpud") if program == "mgpud" else ():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def settled(made: Running) -> str:
    def now() -> str:
        with suppress(Refusal):
            return made.reclaim
        return ""

    until(lambda: now() in ("running", "evicted"), "it is in one place")
    return now()


@pytest.mark.parametrize("program", ["mgpud", "mgpu-checkpoint"])
def test_a_kill_leaves_the_data_where_it_can_go_on(mgpu: Arbiter, built: Programs, program: str) -> None:
    chance = random.Random(SEED)
    with keeper(mgpu, built, "2") as offline, taker(mgpu, built) as online:
        for _ in range(KILLS):
            online.program.tell()
            time.sleep(chance.uniform(0, 0.7))
            kill(mgpu, program)
            assert online.program.line().split()[:2] == ["took", "0"]
            settled(offline)
            online.program.tell()
            time.sleep(chance.uniform(0, 0.7))
            kill(mgpu, program)
            assert online.program.line().split()[:2] == ["gave", "0"]
            until(lambda: settled(offline) == "running", "it runs again")
            rounds(offline)
            assert all(card.used_bytes <= CARD_MIB << 20 for card in mgpu.account().cards)


def test_a_container_that_is_killed_while_it_is_evicted_frees_what_online_waits_for(
    mgpu: Arbiter, built: Programs
) -> None:
    with taker(mgpu, built) as online:
        for delay_s in (0.0, 0.1, 0.3):
            with keeper(mgpu, built, "2") as offline:
                online.program.tell()
                time.sleep(delay_s)
                offline.call("kill", "KILL")
                assert online.program.line().split()[:2] == ["took", "0"]
                turn(online)
