"""Preemption and harvest on each kind of chip: where its engines are seen, and where only RM's
samples say that online is idle.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from tests.bench import colocation
from tests.bench.colocation import MS, SATURATE, SHORT_HOLD_MS, US
from tests.bench.rows import Row, quantile
from tests.support import arbiter, chips, host
from tests.support.arbiter import Arbiter
from tests.support.load import load, runs, spans, working
from tests.support.programs import Programs

TRIALS, WAKE_UPS = 300, 4000
HOLD_MS = 100
# Seen: the hold is all that offline waits for. By samples that is to be a small part of a pause.
SEEN = {"period_ms": 500, "kernels": 20, "kernel_us": 1000, "requests": 12}
# A second is whole samples long: pauses that far apart would all begin at the same place of one.
BLIND = {"period_ms": 1020, "kernels": 20, "kernel_us": 1000, "requests": 16}


def _node(card: str, *options: str, **settings: object) -> AbstractContextManager[Arbiter]:
    lines = "".join(f"{key} = {value!r}\n" for key, value in settings.items())
    return arbiter.running(card, sim_options=list(options), node_config=lines)


def _harvest(mgpu: Arbiter, shared: Path, shape: dict[str, int]) -> float:
    """Percent of what online and its hold leave."""
    colocation.as_hardware(mgpu)
    with load(mgpu, *SATURATE, qos="offline") as offline:
        working(offline)
        stamps, pid = colocation.burst(mgpu, shared, **shape)
        found, theirs = spans(mgpu), offline.pid
    begin, end = stamps[1].submit_ns, stamps[-1].submit_ns
    closed = sum(stamp.latency_ns + int(HOLD_MS * MS) for stamp in stamps[1:-1])
    assert runs(found, pid)
    return colocation.overlap(runs(found, theirs), begin, end) / (end - begin - closed) * 100


def _suspended(card: str, name: str, shared: Path, built: Programs) -> Iterator[Row]:
    late_ms = [us * US / MS for us in colocation.lateness_us(built, WAKE_UPS)]
    with _node(card, hold_ms=SHORT_HOLD_MS) as mgpu:
        seen = colocation.preemption(mgpu, shared, TRIALS, SHORT_HOLD_MS)
    took_ms = [us * US / MS for us in seen.suspend_us]
    title = f"{name}: online submit → offline suspended, {len(took_ms)} trials"
    yield Row(name=f"{title}, p50", value=quantile(took_ms, 0.5), unit="ms")
    # Beside it, how late this machine wakes who polls.
    yield Row(
        name=f"{title}, p99",
        value=quantile(took_ms, 0.99),
        unit="ms",
        baseline=quantile(late_ms, 0.99),
        target=1,
    )
    yield Row(
        name=f"{name}: offline between suspend-complete and release",
        value=seen.stolen_ns,
        unit="ns",
        target=0,
    )


def _harvested(card: str, name: str, shared: Path) -> Iterator[Row]:
    title = f"{name}: offline's part of the time that online and its hold leave"
    for how, options, shape, target in (
        ("engines seen", (), SEEN, 95),
        ("by RM's samples", ("engine-status=0",), BLIND, 85),
    ):
        with _node(card, *options, hold_ms=HOLD_MS) as mgpu:
            yield Row(
                name=f"{title}, {how}",
                value=_harvest(mgpu, shared, shape),
                unit="%",
                target=target,
                better="higher",
            )


def measure(built: Programs) -> list[Row]:
    rows: list[Row] = []
    with host.home("bench") as shared:
        for card, name in chips.KINDS.items():
            rows += [*_suspended(card, name, shared, built), *_harvested(card, name, shared)]
    return rows
