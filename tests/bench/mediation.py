"""What mediation adds to the driver's own time, and what one container's storm does to another's calls."""

from __future__ import annotations

import json
from collections.abc import Iterator
from statistics import median
from typing import Any

from tests.bench.rows import Row
from tests.support.arbiter import Arbiter
from tests.support.bundle import bundle
from tests.support.commands import run
from tests.support.programs import Programs, inside
from tests.support.started import foreground

CALLS, RUNS, STARTS, THREADS = 8000, 3, 15, 100
ENV = {"MGPU_MEMORY_MIB": "1024"}


def measure(mgpu: Arbiter, built: Programs) -> list[Row]:
    return [*_calls(mgpu, built), *_storm(mgpu, built), *_starts(mgpu, built)]


def _inside(mgpu: Arbiter, built: Programs, program: str, count: int) -> dict[str, Any]:
    with bundle(inside(program), str(count), env=ENV, mounts=[built.oci_mount]) as made:
        found: dict[str, Any] = json.loads(made.run(mgpu.runtime).out)
        return found


def _calls(mgpu: Arbiter, built: Programs) -> Iterator[Row]:
    """An allocation and its free are two calls: half of what the pair takes over the driver's is one's. The driver is
    the card's process, asked by the program itself, on the card that mgpu asks."""
    ours, theirs = [], []
    for _ in range(RUNS):
        ours.append(_inside(mgpu, built, "rm_latency", CALLS)["alloc_free"]["p50_ns"])
        direct = run(built.folder / "card_direct", mgpu.root / "sim" / "card.sock", str(CALLS))
        theirs.append(json.loads(direct)["p50_ns"])
    here, there = median(ours) / 2000, median(theirs) / 2000
    yield Row(
        name="mediated allocation, over the driver's own, p50",
        value=here - there,
        unit="us",
        baseline=there,
        target=15,
    )


def _storm(mgpu: Arbiter, built: Programs) -> Iterator[Row]:
    """The quiet container's calls are those that the arbiter answers itself: the simulated card has one lock."""

    def quiet() -> float:
        return float(_inside(mgpu, built, "rm_latency", CALLS)["answered"]["p99_ns"]) / 1000

    alone = median(quiet() for _ in range(RUNS))
    with bundle(inside("alloc_storm"), str(THREADS), env=ENV, mounts=[built.oci_mount]) as made:
        with foreground(made.argv(mgpu.runtime, "run", "--bundle", made.path, made.container)) as storm:
            assert storm.line() == "storming"
            beside = median(quiet() for _ in range(RUNS))
            made.call(mgpu.runtime, "kill", made.container, "KILL")
    yield Row(
        name=f"another container's call beside {THREADS} threads that allocate, p99",
        value=beside,
        unit="us",
        baseline=alone,
        target=200,
    )


def _starts(mgpu: Arbiter, built: Programs) -> Iterator[Row]:
    """Of the simulated library, which does nothing but calls. What share mediation has of the real one's start, only a
    card can say: tests/gpu/bringup.sh measures it there."""
    took_us = [float(_inside(mgpu, built, "cuda_start", STARTS)["p50_us"]) for _ in range(RUNS)]
    yield Row(
        name="cuInit and a context of the simulated library, p50", value=median(took_us) / 1000, unit="ms"
    )
