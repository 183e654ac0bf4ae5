"""What mediation adds to the driver's own time, and what one container's storm does to another's calls."""

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.rows import Row, compared
from tests.support import arbiter
from tests.support.arbiter import Arbiter
from tests.support.commands import attempt, run
from tests.support.places import PREFIX
from tests.support.programs import UNMEDIATED, Programs, inside
from tests.support.started import foreground

CALLS, RUNS, STARTS, THREADS = 8000, 3, 15, 100
# An exec has a listener of its own, and a container has 32 at most.
EXECS, EXEC_THREADS = 31, 4
# Both sides of a comparison take turns: what else runs on the machine comes and goes within seconds.
TURNS, TURN_CALLS = 11, 3000
ENV = {"MGPU_MEMORY_MIB": "1024"}


def measure(mgpu: Arbiter, built: Programs) -> list[Row]:
    here = _alloc_and_free(mgpu, built)
    with one_cpu(), arbiter.running("v100-16") as pinned:
        there = _alloc_and_free(pinned, built)
        starts = [*_starts(pinned, built)]
    return [
        Row(
            name="mediated allocation, over the driver's own, p50",
            value=median(here.added_us),
            unit="us",
            baseline=median(here.driver_us),
            target=15,
        ),
        Row(
            name="the same, all on one CPU, beside what an empty supervisor adds",
            value=median(there.added_us),
            unit="us",
            baseline=median(there.least_us),
        ),
        *_storm(mgpu, built),
        *starts,
    ]


@contextmanager
def one_cpu() -> Iterator[None]:
    """Programs that are started meanwhile stay on one CPU. The card's process answers from where its caller
    runs, as a driver does. Otherwise each question to it may wake a CPU that the hypervisor has put to sleep,
    or may not: tens of µs, on either side of a comparison, by what else runs on the machine.
    """
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _inside(mgpu: Arbiter, built: Programs, program: str, count: int) -> dict[str, Any]:
    with built.bundle(program, str(count), env=ENV) as made:
        found: dict[str, Any] = json.loads(made.run(mgpu.runtime).out)
        return found


class _Figures:
    """Of one call, by turns, in µs: the driver's own; what mediation adds to it; what an empty supervisor
    adds.
    """

    def __init__(self) -> None:
        self.driver_us: list[float] = []
        self.added_us: list[float] = []
        self.least_us: list[float] = []


def _alloc_and_free(mgpu: Arbiter, built: Programs) -> _Figures:
    """An allocation and its free are two calls: half of what the pair takes over the driver's is one's. The
    driver is the card's process, asked by the program itself, on the card that mgpu asks.
    """
    found = _Figures()
    for _ in range(TURNS):
        ours = _inside(mgpu, built, "rm_latency", TURN_CALLS)["alloc_free"]["p50_ns"]
        beside = json.loads(
            run(built.folder / "card_direct", mgpu.root / "sim" / "card.sock", str(TURN_CALLS))
        )
        driver = beside["direct"]["p50_ns"]
        found.driver_us.append(driver / 2000)
        found.added_us.append((ours - driver) / 2000)
        found.least_us.append((beside["notified"]["p50_ns"] - driver) / 2000)
    return found


def _storm(mgpu: Arbiter, built: Programs) -> Iterator[Row]:
    """The quiet container's calls are those that the arbiter answers itself: the simulated card has one
    lock."""

    def quiet() -> float:
        return float(_inside(mgpu, built, "rm_latency", CALLS)["answered"]["p99_ns"]) / 1000

    alone = median(quiet() for _ in range(RUNS))
    with ExitStack() as stack:
        made = stack.enter_context(built.bundle("alloc_storm", str(THREADS), env=ENV))

        def storm(verb: str, *words: str | Path) -> None:
            started = stack.enter_context(foreground(made.argv(mgpu.runtime, verb, *words)))
            assert started.line() == "storming"

        storm("run", "--bundle", made.path, made.container)
        threads = median(quiet() for _ in range(RUNS))
        for _ in range(EXECS):
            storm("exec", made.container, inside("alloc_storm"), str(EXEC_THREADS))
        listeners = median(quiet() for _ in range(RUNS))
        made.call(mgpu.runtime, "kill", made.container, "KILL")
    for who, beside in ((f"{THREADS} threads", threads), (f"{EXECS + 1} listeners", listeners)):
        yield Row(
            name=f"another container's call beside {who} that allocate, p99",
            value=beside,
            unit="us",
            baseline=alone,
            target=200,
        )


def _starts(mgpu: Arbiter, built: Programs) -> Iterator[Row]:
    """Of the simulated library, which does nothing but calls, beside the same program with the card for its
    driver: how two kinds of call compare.
    """
    mediated, plain, calls = [], [], 0
    for _ in range(TURNS):
        mediated.append(float(_inside(mgpu, built, "cuda_start", STARTS)["p50_us"]))
        found, calls = _unmediated(mgpu, built, "cuda_start", STARTS)
        plain.append(float(found["p50_us"]))
    yield from compared(
        "cuInit and a context of the simulated library, all on one CPU, p50", mediated, plain
    )
    yield Row(
        name=f"added to a context, which is {calls} calls",
        value=median(ours - theirs for ours, theirs in zip(mediated, plain, strict=True)),
        unit="us",
    )


def _unmediated(mgpu: Arbiter, built: Programs, program: str, starts: int) -> tuple[dict[str, Any], int]:
    """The same program with the card for its driver: what it printed, and the calls of each of its starts."""
    done = attempt(
        built.folder / program,
        str(starts),
        env={
            "LD_PRELOAD": str(built.folder / UNMEDIATED),
            "LD_LIBRARY_PATH": str(PREFIX / "lib" / "mgpu" / "sim"),
            "MGPU_CARD_SOCKET": str(mgpu.root / "sim" / "card.sock"),
        },
    )
    assert done.status == 0, str(done)
    return json.loads(done.out), round(json.loads(done.err)["calls"] / starts)
