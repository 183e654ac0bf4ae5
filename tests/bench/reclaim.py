"""Online's wait for memory that offline holds, beside the time that its bytes need on the card's copy
engine: by the simulated card's own account.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

from sim import cards
from sim.cards import Span
from tests.bench.colocation import node
from tests.bench.rows import Row, quantile
from tests.support.arbiter import Arbiter, Json
from tests.support.bundle import bundle
from tests.support.lending import Running, running, taker, turn
from tests.support.load import INSIDE, mounts
from tests.support.programs import Programs, inside

MS, US = 1e6, 1e3
MOST = 1.2
HELD_MIB, TRIALS = 1024, 100
LARGE_MIB, LARGE_TRIALS = 8192, 20
# The drain: kernels that are queued when the call comes.
WORK = f"{INSIDE} saturate --kernel-us 5000 --queue 4"
CALLS, RUNS = "20000", 5


@dataclass(frozen=True)
class Wait:
    """One call of online's. drain_ns: what offline's submitted work took from the start of its eviction on;
    copies_ns: the copy of its memory.
    """

    took_ns: int
    drain_ns: int
    copies_ns: int

    @property
    def ratio(self) -> float:
        return (self.took_ns - self.drain_ns) / self.copies_ns


@contextmanager
def offline(mgpu: Arbiter, built: Programs, mib: int, work: str) -> Iterator[Running]:
    """A process that holds memory without data, which no processor has to copy, and one that works."""
    annotations = {
        "mgpu.dev/memory-mib": str(mib + 1024),
        "mgpu.dev/qos": "offline",
        "mgpu.dev/memory-reclaimable": "true",
    }
    command = f"{work + ' >/dev/null &' if work else ''} exec {inside('hold')} {mib}"
    mounted = [built.oci_mount, *mounts()]
    with bundle("sh", "-c", command, annotations=annotations, mounts=mounted) as made:
        with running(mgpu, made) as one:
            assert one.program.line() == "held 0"
            yield one


def _events(mgpu: Arbiter, since: int) -> Json:
    return mgpu.ask("timeline", since=since)


def _card(mgpu: Arbiter, since: int) -> cards.Timeline:
    return cards.timeline(mgpu.root / "sim" / "admin.sock", 0, since)


def _wait(mgpu: Arbiter, online: Running, holds: Running) -> Wait:
    """Offline is back at the end of it. Its first process is the one that holds."""
    row = holds.row
    event, entry = _events(mgpu, 0)["next"], _card(mgpu, 0).next
    took_ns = turn(online) * 1000
    holds.until("evicted")
    begun_ns = next(at for at, _, grant, *_ in _events(mgpu, event)["events"] if grant == row["id"])
    found = _card(mgpu, entry)
    assert not found.lost
    ran = [span for span in found.spans if span.kind == "run"]
    turn(online)
    holds.until("running")
    copies = [span for span in ran if span.tgid == row["pid"]]
    kernels = [span for span in ran if span.tgid != row["pid"]]
    return Wait(took_ns, _until_done(kernels, begun_ns), sum(span.end_ns - span.start_ns for span in copies))


def _until_done(kernels: list[Span], begun_ns: int) -> int:
    return max([0, *(span.end_ns - begun_ns for span in kernels)])


def _waits(mgpu: Arbiter, built: Programs, mib: int, trials: int, work: str = "") -> list[Wait]:
    with offline(mgpu, built, mib, work) as holds, taker(mgpu, built) as online:
        return [_wait(mgpu, online, holds) for _ in range(trials)]


def _rows(name: str, waits: list[Wait]) -> Iterator[Row]:
    copies_ms = median(wait.copies_ns for wait in waits) / MS
    took = [wait.took_ns / MS for wait in waits]
    drains = [wait.drain_ns / MS for wait in waits]
    ratios = [wait.ratio for wait in waits]
    for which, share in (("p50", 0.5), ("p99", 0.99)):
        yield Row(
            name=f"online's allocation that waits for {name}, {len(waits)} trials, {which}; beside: the copies",
            value=quantile(took, share),
            unit="ms",
            baseline=copies_ms,
        )
        if any(drains):
            yield Row(
                name=f"of it offline's submitted work, {which}", value=quantile(drains, share), unit="ms"
            )
        yield Row(
            name=f"the same less that work, over the copies, {which}",
            value=quantile(ratios, share),
            unit="x",
            target=MOST,
        )


def _allocation_us(built: Programs, lends: bool) -> float:
    with node(offline_overcommit=lends) as mgpu:
        env = {"MGPU_MEMORY_MIB": "1024"}
        with built.bundle("rm_latency", CALLS, env=env) as made:
            return float(json.loads(made.output(mgpu.runtime))["alloc_free"]["p50_ns"]) / US


def measure_nothing_to_evict(built: Programs) -> Iterator[Row]:
    """By turns."""
    turns = [(_allocation_us(built, True), _allocation_us(built, False)) for _ in range(RUNS)]
    yield Row(
        name="allocation and free where nothing gives way, p50; beside: on a node that lends no memory",
        value=median(lends for lends, _ in turns),
        unit="us",
        baseline=median(keeps for _, keeps in turns),
    )
    yield Row(
        name="the same, over that node",
        value=median(lends / keeps for lends, keeps in turns),
        unit="x",
        target=1.05,
    )


def measure(built: Programs) -> list[Row]:
    with node(offline_overcommit=True, restore_hold_ms=0) as mgpu:
        idle = _waits(mgpu, built, HELD_MIB, TRIALS)
        large = _waits(mgpu, built, LARGE_MIB, LARGE_TRIALS)
        busy = _waits(mgpu, built, HELD_MIB, TRIALS, WORK)
    return [
        *_rows(f"{HELD_MIB >> 10} GiB of an idle offline container", idle),
        *_rows(f"{LARGE_MIB >> 10} GiB of one", large),
        *_rows(f"{HELD_MIB >> 10} GiB of one at work", busy),
        *measure_nothing_to_evict(built),
    ]
