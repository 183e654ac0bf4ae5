"""What a share of several cards or engines has beside a simple one: copies from card to card, beside the same
ones of the machine itself; and how soon it is suspended with all engines at work, beside each alone.
"""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from sim import cards
from sim.cards import Span
from tests.bench.colocation import PERIOD_MS, SHORT_HOLD_MS, US, Stamp, as_hardware, burst, node
from tests.bench.rows import Row, compared, quantile
from tests.support import arbiter, host
from tests.support.arbiter import Arbiter
from tests.support.commands import Done, attempt
from tests.support.engines import ENGINES, OFFLINE
from tests.support.foreign import CASES, foreign_bundle
from tests.support.places import FOREIGN_PACKAGES
from tests.support.programs import UNMEDIATED, Programs

TRANSFERS, TURNS = "tinygrad_cases.py", 9
SUSPENDS = 300
MOST_OF_ONE, MOST_OF_PLAIN = 1.2, 1.02


def _mediated(mgpu: Arbiter) -> Done:
    with foreign_bundle(TRANSFERS, "transfers", memory_mib=4096, env={"MGPU_GPUS": "2"}) as made:
        return made.run(mgpu.runtime)


def _alone(mgpu: Arbiter, built: Programs) -> Done:
    """On the machine itself, with the simulated cards for its driver."""
    env = {
        **os.environ,
        "LD_PRELOAD": str(built.folder / UNMEDIATED),
        "MGPU_CARD_SOCKET": str(mgpu.root / "sim" / "card.sock"),
        "PYTHONPATH": str(FOREIGN_PACKAGES),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return attempt(sys.executable, CASES / TRANSFERS, "transfers", env=env)


def _copy_us(done: Done) -> float:
    assert done.status == 0, done
    found = json.loads(done.out.splitlines()[-1])["transfers"]
    assert found["same"]
    return float(median(found["took_us"]))


def measure_transfers(built: Programs) -> Iterator[Row]:
    """tinygrad's own, by turns on the same cards."""
    ours, plain = [], []
    with arbiter.running("a10:2") as mgpu:
        for _ in range(TURNS):
            ours.append(_copy_us(_mediated(mgpu)))
            plain.append(_copy_us(_alone(mgpu, built)))
    yield from compared(
        "tinygrad copies 64 MiB from one shared card to the other", ours, plain, MOST_OF_PLAIN
    )


def _off_us(stamp: Stamp, theirs: Sequence[Span], engine: str) -> float | None:
    """Until offline is off the engine; None where it was not on it."""
    on = [span for span in theirs if (span.kind, span.engine) == ("run", engine)]
    off_ns = [span.end_ns for span in theirs if (span.kind, span.engine) == ("disable", engine)]
    after = [end_ns for end_ns in off_ns if end_ns >= stamp.submit_ns]
    if after and any(span.start_ns <= stamp.submit_ns < span.end_ns for span in on):
        return (after[0] - stamp.submit_ns) / US
    return None


def _suspend_us(stamps: Sequence[Stamp], theirs: Sequence[Span], engines: Sequence[str]) -> list[float]:
    """Of the requests that found offline on all of these engines: until it is off the last of them."""
    each = [[_off_us(stamp, theirs, engine) for engine in engines] for stamp in stamps]
    return [max(us for us in one if us is not None) for one in each if None not in one]


def _suspended(built: Programs, shared: Path, engines: Sequence[str]) -> list[float]:
    with node("h200:1", hold_ms=SHORT_HOLD_MS) as mgpu:
        as_hardware(mgpu)
        with built.bundle("engines", *engines, env=OFFLINE) as made, made.running(mgpu.runtime) as running:
            assert running.line() == "works"
            [offline] = mgpu.containers()
            stamps, _ = burst(mgpu, shared, period_ms=PERIOD_MS, kernels=1, kernel_us=200, requests=SUSPENDS)
            history = cards.timeline(mgpu.root / "sim" / "admin.sock", 0, 0)
    assert not history.lost
    theirs = [span for span in history.spans if span.tgid == offline["pid"]]
    return _suspend_us(stamps, theirs, engines)


def measure_suspends(built: Programs, shared: Path) -> Iterator[Row]:
    """A card that shares its graphics engine by time may have offline off it before mgpu asks; it is never
    off the others before.
    """
    alone = {name: _suspended(built, shared, (name,)) for name in ENGINES}
    slowest = max(ENGINES, key=lambda name: median(alone[name]))
    together = _suspended(built, shared, ENGINES)
    title = f"offline suspended on three engines, {len(together)} trials"
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        yield Row(
            name=f"{title}, {name}; beside: on {slowest} alone",
            value=quantile(together, share),
            unit="us",
            baseline=quantile(alone[slowest], share),
        )
    for name in ENGINES:
        yield Row(
            name=f"the same p50 over that on {name} alone",
            value=median(together) / median(alone[name]),
            unit="x",
            target=MOST_OF_ONE,
        )


def measure(built: Programs) -> Iterator[Row]:
    with host.home("bench") as shared:
        yield from measure_transfers(built)
        yield from measure_suspends(built, shared)
