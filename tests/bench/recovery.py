"""How long 64 containers wait for the mgpud that follows one which was killed."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median

from native_sched.daemon.node import boost
from tests.bench.rows import Row
from tests.chaos.field import NS_PER_MS, end
from tests.support import arbiter
from tests.support.arbiter import Arbiter
from tests.support.brief import Life, nursery
from tests.support.commands import run
from tests.support.programs import Programs
from tests.support.waiting import until

CONTAINERS, CARDS = 64, 4
RUNS = 15
LIMIT_MS = 150.0
# mgpud is idle again, and has been for long enough to be followed at once when it dies; so is who stands by.
PAUSE_S = 1.0
# Of the standard library's, what mgpud loads before it serves.
LOADED = ("argparse", "contextlib", "ctypes", "dataclasses", "json", "socket", "struct")


@dataclass(frozen=True)
class Recovery:
    """From the death of mgpud, when the holder calls the next one, to the answer to a call that was made
    after it.
    """

    took_ms: float
    cpu_ms: float
    stages_ms: dict[str, float]


def _recover(mgpu: Arbiter, life: Life) -> Recovery:
    before = mgpu.ask("health")["generation"]
    died_ns = end(mgpu.pid_of("mgpud"))
    life.call()
    took_ms = (time.monotonic_ns() - died_ns) / NS_PER_MS
    until(lambda: mgpu.ask("health")["generation"] == before + 1, "the next one is there")
    until(lambda: mgpu.standby() is not None, "the one after that stands by")
    time.sleep(PAUSE_S)
    recovered = mgpu.ask("health")["recovered"]
    assert recovered["listeners"] == CONTAINERS
    stages_ms: dict[str, float] = recovered["stages_ms"]
    rest_ms = took_ms - sum(stages_ms.values())
    return Recovery(
        took_ms,
        recovered["cpu_ms"],
        {**stages_ms, "the call of who stands by, and the first answer": rest_ms},
    )


def _interpreter() -> Recovery:
    """What the machine takes at the same time and priority for as much of it as is no part of mgpu."""
    program = f"import {', '.join(LOADED)}, time; print(time.process_time())"
    began_ns = time.monotonic_ns()
    cpu_s = float(run("nice", "-n", str(boost.NICE), sys.executable, "-c", program))
    return Recovery((time.monotonic_ns() - began_ns) / NS_PER_MS, cpu_s * 1000, {})


def measure(built: Programs) -> list[Row]:
    """Each container has a client, memory, and a channel that has had work; none has anything to do
    meanwhile.
    """
    with ExitStack() as stack:
        mgpu = stack.enter_context(arbiter.running(f"h200:{CARDS}"))
        lives = []
        for number in range(CONTAINERS):
            lives.append(stack.enter_context(nursery(mgpu, built, number % CARDS)).begin())
            lives[-1].work()
        until(lambda: mgpu.ask("health")["listeners"] == CONTAINERS, "all are served")
        until(lambda: mgpu.standby() is not None, "another one stands by")
        time.sleep(PAUSE_S)
        found, bare = [], []
        for turn in range(RUNS):
            found.append(_recover(mgpu, lives[turn % CONTAINERS]))
            bare.append(_interpreter())
        for life in lives:
            life.end()
        arbiter.until_empty(mgpu)
    what = f"death of mgpud to the first answer of the next one, {CONTAINERS} containers"
    took_ms = [one.took_ms for one in found]
    return [
        Row(
            name=f"{what}, p50 of {RUNS}",
            value=median(took_ms),
            unit="ms",
            baseline=median(one.took_ms for one in bare),
            target=LIMIT_MS,
        ),
        Row(
            name=f"{what}, worst",
            value=max(took_ms),
            unit="ms",
            baseline=max(one.took_ms for one in bare),
            target=LIMIT_MS,
        ),
        Row(
            name="processor time of it until all are served, p50",
            value=median(one.cpu_ms for one in found),
            unit="ms",
            baseline=median(one.cpu_ms for one in bare),
        ),
        *_stages(found),
    ]


def _stages(found: Sequence[Recovery]) -> Iterator[Row]:
    """The median of each, beside it what it took in the worst recovery."""
    worst = max(found, key=lambda one: one.took_ms)
    for stage, in_worst_ms in worst.stages_ms.items():
        yield Row(
            name=f"... of it: {stage}, beside the worst's",
            value=median(one.stages_ms[stage] for one in found),
            unit="ms",
            baseline=in_worst_ms,
        )
