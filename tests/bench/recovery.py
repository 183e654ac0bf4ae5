"""How long 64 containers wait for the mgpud that follows one which was killed."""

from __future__ import annotations

import time
from contextlib import ExitStack
from statistics import median

from tests.bench.rows import Row
from tests.chaos.field import NS_PER_MS, end
from tests.support import arbiter
from tests.support.arbiter import Arbiter
from tests.support.brief import Life, nursery
from tests.support.programs import Programs
from tests.support.waiting import until

CONTAINERS, CARDS = 64, 4
RUNS = 15
LIMIT_MS = 150.0
# mgpud is idle again, and has been for long enough to be followed at once when it dies.
PAUSE_S = 1.0


def _recovery_ms(mgpu: Arbiter, life: Life) -> float:
    """From the death of mgpud, when the holder forks the next one, to the answer to a call that was made after it."""
    before = mgpu.ask("health")["generation"]
    died_ns = end(mgpu.pid_of("mgpud"))
    life.call()
    took_ms = (time.monotonic_ns() - died_ns) / NS_PER_MS
    until(lambda: mgpu.ask("health")["generation"] == before + 1, "the next one is there")
    time.sleep(PAUSE_S)
    assert mgpu.ask("health")["recovered"]["listeners"] == CONTAINERS
    return took_ms


def measure(built: Programs) -> list[Row]:
    """Each container has a client, memory, and a channel that has had work; nobody has anything to do meanwhile."""
    with ExitStack() as stack:
        mgpu = stack.enter_context(arbiter.running(f"h200:{CARDS}"))
        lives = []
        for number in range(CONTAINERS):
            lives.append(stack.enter_context(nursery(mgpu, built, number % CARDS)).begin())
            lives[-1].work()
        until(lambda: mgpu.ask("health")["listeners"] == CONTAINERS, "all are served")
        time.sleep(PAUSE_S)
        took = [_recovery_ms(mgpu, lives[run % CONTAINERS]) for run in range(RUNS)]
        for life in lives:
            life.end()
        arbiter.until_empty(mgpu)
    what = f"death of mgpud to the first answer of the next one, {CONTAINERS} containers"
    return [
        Row(name=f"{what}, p50 of {RUNS}", value=median(took), unit="ms", target=LIMIT_MS),
        Row(name=f"{what}, worst", value=max(took), unit="ms"),
    ]
