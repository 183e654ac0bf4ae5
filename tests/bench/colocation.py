"""What online feels of offline, and what offline gets: by the simulated card's own account.

Every set-up is also run with mgpu's scheduler off (`schedule = false`), where the card slices its time by
itself: that is the figure beside.
"""

import bisect
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from sim.cards import Span
from tests.bench.rows import Row, quantile
from tests.support import arbiter, host
from tests.support.arbiter import Arbiter
from tests.support.commands import run
from tests.support.load import Load, load, runs, shares, spans, working
from tests.support.programs import Programs
from tests.support.started import foreground

MS, US = 1e6, 1e3
TRIALS = 2100
CURVE_TRIALS = 400
POLLS_US = (50, 100, 200, 500, 1000)
DEFAULT_POLL_US = 500
# Below the scheduler's thread, which is 20.
CARDS_PRIORITY = 10
# Between two requests offline gets the card back and runs for a while.
SHORT_HOLD_MS = 5
PERIOD_MS = 25
INTERFERENCE, INTERFERENCE_TURNS = 1.02, 2
LONG_KERNEL = ("saturate", "--kernel-us", "10000000", "--queue", "2", "--seconds", "600")
SATURATE = ("saturate", "--kernel-us", "1000", "--seconds", "600")


@dataclass(frozen=True)
class Stamp:
    """One request of an online container, by CLOCK_MONOTONIC in ns."""

    submit_ns: int
    first_start_ns: int
    done_ns: int

    @property
    def latency_ns(self) -> int:
        return self.done_ns - self.submit_ns


@contextmanager
def node(cards: str = "v100-16", **settings: object) -> Iterator[Arbiter]:
    """mgpu with these settings of node.toml."""
    said = {True: "true", False: "false"}
    lines = [
        f"{key} = {said[value] if isinstance(value, bool) else repr(value)}"
        for key, value in settings.items()
    ]
    with arbiter.running(cards, node_config="\n".join(lines) + "\n") as mgpu:
        yield mgpu


def burst(
    mgpu: Arbiter, shared: Path, *, period_ms: int, kernels: int, kernel_us: int, requests: int
) -> tuple[list[Stamp], int]:
    """An online container's requests and its pid."""
    (shared / "stamps").unlink(missing_ok=True)
    shape = ["--period-ms", str(period_ms), "--kernels", str(kernels), "--kernel-us", str(kernel_us)]
    count = ["--requests", str(requests), "--stamps", "/shared/stamps"]
    with load(mgpu, "burst", *shape, *count, shared=shared) as online:
        working(online)
        pid = online.pid
        online.result(timeout_s=requests * max(period_ms, kernels * kernel_us / 1000) / 1000 * 2 + 60)
    text = (shared / "stamps").read_text()
    return [Stamp(*map(int, line.split())) for line in text.splitlines()], pid


def _after(instants: Sequence[int], at: int) -> int | None:
    """The first of the sorted instants at or after `at`."""
    found = bisect.bisect_left(instants, at)
    return instants[found] if found < len(instants) else None


def overlap(found: Iterable[Span], start_ns: int, end_ns: int) -> int:
    """How much of the time from start to end the spans take."""
    return sum(max(0, min(span.end_ns, end_ns) - max(span.start_ns, start_ns)) for span in found)


@dataclass(frozen=True)
class Preemption:
    """From online's submit to offline off the card, for each request that found offline running; and the way
    back.
    """

    suspend_us: list[float]
    release_ms: list[float]
    stolen_ns: int


def as_hardware(mgpu: Arbiter) -> None:
    """A card's engines share no processor with programs: nor do the simulated card's threads."""
    for thread in Path(f"/proc/{mgpu.pid_of('simcard')}/task").iterdir():
        with suppress(ProcessLookupError):  # it has ended
            os.sched_setscheduler(int(thread.name), os.SCHED_FIFO, os.sched_param(CARDS_PRIORITY))


def preemption(mgpu: Arbiter, shared: Path, trials: int, hold_ms: int) -> Preemption:
    as_hardware(mgpu)
    with load(mgpu, *LONG_KERNEL, qos="offline") as offline:
        working(offline)
        stamps, pid = burst(mgpu, shared, period_ms=PERIOD_MS, kernels=1, kernel_us=200, requests=trials)
        found, theirs_pid = spans(mgpu), offline.pid
    mine, theirs = runs(found, pid), runs(found, theirs_pid)
    off = [span.end_ns for span in found if span.kind == "disable" and span.tgid == theirs_pid]
    starts = [span.start_ns for span in theirs]
    suspend_us, release_ms, stolen_ns = [], [], 0
    for stamp, after in zip(stamps, [*stamps[1:], None], strict=True):
        running = bisect.bisect_right(starts, stamp.submit_ns) - 1
        if running < 0 or theirs[running].end_ns < stamp.submit_ns:
            continue
        gone = _after(off, stamp.submit_ns)
        if gone is None:
            continue
        suspend_us.append((gone - stamp.submit_ns) / US)
        ended = max(
            (span.end_ns for span in mine if stamp.submit_ns <= span.end_ns <= stamp.done_ns), default=gone
        )
        back = _after(starts, gone)
        if back is not None and (after is None or back < after.submit_ns):
            release_ms.append((back - ended) / MS - hold_ms)
            stolen_ns += overlap(theirs, gone, ended + int(hold_ms * MS))
    return Preemption(suspend_us, release_ms, stolen_ns)


@contextmanager
def polling(built: Programs, period_us: int) -> Iterator[int]:
    """The pid of a program that only sleeps so often."""
    with foreground([built.folder / "timer_floor", str(period_us), "1000000000"]) as running:
        yield running.process.pid


def lateness_us(built: Programs, count: int) -> list[float]:
    """How late the machine itself wakes who polls."""
    said = run(built.folder / "timer_floor", str(DEFAULT_POLL_US), str(count))
    return [int(line) / US for line in said.split()]


def measure_timer(built: Programs) -> Iterator[Row]:
    """What nobody can do better, before anything else is done."""
    late_us = lateness_us(built, 20000)
    name = f"this machine's timer, every {DEFAULT_POLL_US} us: late"
    for title, share in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)):
        yield Row(name=f"{name}, {title}", value=quantile(late_us, share), unit="us")


def measure_preemption(shared: Path) -> Iterator[Row]:
    with node(hold_ms=SHORT_HOLD_MS) as mgpu:
        seen = preemption(mgpu, shared, TRIALS, SHORT_HOLD_MS)
    count = len(seen.suspend_us)
    name = f"online submit → offline suspended, {count} trials"
    yield Row(name=f"{name}, p50", value=quantile(seen.suspend_us, 0.5), unit="us")
    yield Row(name=f"{name}, p99", value=quantile(seen.suspend_us, 0.99), unit="us", target=1000)
    yield Row(name="offline between suspend-complete and release", value=seen.stolen_ns, unit="ns", target=0)
    name = "release after the hold"
    yield Row(name=f"{name}, p50", value=quantile(seen.release_ms, 0.5), unit="ms")
    yield Row(name=f"{name}, p99", value=quantile(seen.release_ms, 0.99), unit="ms", target=5)
    yield Row(name=f"{name}, earliest", value=min(seen.release_ms), unit="ms", target=0, better="higher")


def _cpu_ns(pid: int) -> int:
    """Exact, where /proc/PID/stat samples."""
    return sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat"))


def _cpu_percent(pid: int, seconds: float) -> float:
    before, began = _cpu_ns(pid), time.monotonic_ns()
    time.sleep(seconds)
    return (_cpu_ns(pid) - before) * 100 / (time.monotonic_ns() - began)


def measure_curve(shared: Path, built: Programs) -> Iterator[Row]:
    """Poll period against latency and CPU, online idle beside running offline."""
    for poll_us in POLLS_US:
        with polling(built, poll_us) as floor:
            time.sleep(0.5)
            bare = _cpu_percent(floor, 3)
        with node(hold_ms=SHORT_HOLD_MS, poll_fast_us=poll_us) as mgpu:
            seen = preemption(mgpu, shared, CURVE_TRIALS, SHORT_HOLD_MS).suspend_us
            with load(mgpu, *LONG_KERNEL, qos="offline") as offline, waiting_online(mgpu):
                working(offline)
                time.sleep(0.5)
                cpu = _cpu_percent(mgpu.pid_of("mgpud"), 4)
        name = f"poll every {poll_us} us"
        yield Row(name=f"{name}: suspended, p50", value=quantile(seen, 0.5), unit="us")
        yield Row(name=f"{name}: suspended, p99", value=quantile(seen, 0.99), unit="us")
        yield Row(
            name=f"{name}: mgpud",
            value=cpu,
            unit="% of a core",
            baseline=bare,
        )


@contextmanager
def waiting_online(mgpu: Arbiter) -> Iterator[Load]:
    """An online container that has made its context and asks for nothing more for an hour."""
    with load(
        mgpu, "burst", "--period-ms", "3600000", "--kernels", "1", "--kernel-us", "100", "--requests", "2"
    ) as one:
        working(one)
        yield one


@dataclass(frozen=True)
class Latencies:
    """Of the same requests, in ns: alone and alone again, where mgpu schedules nothing; beside offline,
    scheduled and sliced by the card itself.
    """

    alone: list[int]
    again: list[int]
    beside: list[int]
    sliced: list[int]


def _p99(latencies_ns: Sequence[int]) -> float:
    return quantile(latencies_ns, 0.99)


def _latencies(shared: Path, shape: dict[str, int]) -> Latencies:
    """By turns, so that what else the machine does falls on each of them."""

    def made(schedule: bool, *, offline: bool) -> list[int]:
        with node(schedule=schedule) as mgpu, ExitStack() as stack:
            if offline:
                working(stack.enter_context(load(mgpu, *SATURATE, qos="offline")))
            stamps, _ = burst(mgpu, shared, **shape)
        return [stamp.latency_ns for stamp in stamps[1:]]

    found = Latencies([], [], [], [])
    for _ in range(INTERFERENCE_TURNS):
        found.alone.extend(made(False, offline=False))
        found.beside.extend(made(True, offline=True))
        found.again.extend(made(False, offline=False))
    found.sliced.extend(made(False, offline=True))
    return found


def measure_interference(shared: Path) -> Iterator[Row]:
    """Of so few requests the p99 is one of the worst, which a stall of the machine makes, with no other
    beside them too. So beside it stands by how much the same p99 differs between two runs that mgpu has no
    part in.
    """
    shapes = [
        (
            "20 ms requests, gaps below the hold",
            {"period_ms": 60, "kernels": 20, "kernel_us": 1000, "requests": 150},
        ),
        (
            "20 ms requests, gaps above the hold",
            {"period_ms": 200, "kernels": 20, "kernel_us": 1000, "requests": 60},
        ),
    ]
    for name, shape in shapes:
        found = _latencies(shared, shape)
        alone = [*found.alone, *found.again]
        twice = sorted([_p99(found.alone), _p99(found.again)])
        yield Row(
            name=f"online p50 beside offline over alone, {name}; beside: sliced by the card",
            value=median(found.beside) / median(alone),
            unit="x",
            baseline=median(found.sliced) / median(alone),
            target=INTERFERENCE,
        )
        yield Row(
            name=f"online p99 beside offline over alone, {name}; beside: alone over alone",
            value=_p99(found.beside) / _p99(alone),
            unit="x",
            baseline=twice[1] / twice[0],
            target=INTERFERENCE,
        )
        yield Row(
            name=f"online p99 over its p50, {name}; beside: alone",
            value=_p99(found.beside) / median(found.beside),
            unit="x",
            baseline=_p99(alone) / median(alone),
        )
    found = _latencies(shared, {"period_ms": 150, "kernels": 1, "kernel_us": 1000, "requests": 80})
    alone = [*found.alone, *found.again]
    yield Row(
        name="online p99 beside offline less alone, 1 ms requests, gaps above the hold; beside: alone less alone",
        value=(_p99(found.beside) - _p99(alone)) / MS,
        unit="ms",
        baseline=abs(_p99(found.again) - _p99(found.alone)) / MS,
        target=1.0,
    )


def measure_harvest(shared: Path) -> Iterator[Row]:
    hold_ms, shape = 100, {"period_ms": 500, "kernels": 20, "kernel_us": 1000, "requests": 20}
    with node(hold_ms=hold_ms, policy="guaranteed-burst-share") as mgpu:
        with load(mgpu, *SATURATE, qos="offline") as offline:
            working(offline)
            stamps, pid = burst(mgpu, shared, **shape)
            found, theirs_pid = spans(mgpu), offline.pid
    begin, end = stamps[1].submit_ns, stamps[-1].submit_ns
    closed = sum(stamp.latency_ns + int(hold_ms * MS) for stamp in stamps[1:-1])
    ran = overlap(runs(found, theirs_pid), begin, end)
    assert runs(found, pid)
    yield Row(
        name="offline's part of the time that online and its hold leave",
        value=ran / (end - begin - closed) * 100,
        unit="%",
        target=95,
        better="higher",
    )


SHARES = [
    ("fixed-share", (30, 70), 1000, 10),
    ("fixed-share", (25, 25, 50), 50, 10),
    ("fixed-share", (25, 25, 25, 25), 50000, 10),
    ("fixed-share", (40, 60), 1000000, 10),
    ("fixed-share", (6,) * 16, 1000, 10),
    ("fixed-share", (30,), 1000, 10),
    ("guaranteed-burst-share", (20, 60), 1000, 10),
    ("guaranteed-burst-share", (10, 20, 30, 40), 50000, 10),
    ("native-burst-share", (10,) * 8, 1000, 10),
    ("native-burst-share", (50, 50), 1000000, 10),
]


def expected(policy: str, quotas: Sequence[int]) -> list[float]:
    if policy == "fixed-share":
        return [float(quota) for quota in quotas]
    weights = [1] * len(quotas) if policy == "native-burst-share" else list(quotas)
    return [weight * 100 / sum(weights) for weight in weights]


def tenants_shares(mgpu: Arbiter, quotas: Sequence[int], kernel_us: int, seconds: float) -> list[float]:
    """Percent of the card's time that each of the offline tenants got."""
    with ExitStack() as stack:
        # What a client has queued outlasts the wait for its turn on this machine's own CPUs.
        queue = str(max(4, 20_000 // kernel_us))
        args = ("saturate", "--kernel-us", str(kernel_us), "--queue", queue, "--seconds", "600")
        loads = [
            stack.enter_context(load(mgpu, *args, qos="offline", core=quota, memory_mib=512))
            for quota in quotas
        ]
        for one in loads:
            working(one)
        pids = [one.pid for one in loads]
        time.sleep(0.5)
        return shares(mgpu, pids, seconds)


def measure_shares() -> Iterator[Row]:
    for policy, quotas, kernel_us, seconds in SHARES:
        wanted = expected(policy, quotas)
        worst = {}
        for schedule in (True, False):
            with node(policy=policy, schedule=schedule) as mgpu:
                got = tenants_shares(mgpu, quotas, kernel_us, seconds if schedule else 3)
            worst[schedule] = max(abs(a - b) for a, b in zip(got, wanted, strict=True))
        said = "/".join(map(str, quotas)) if len(set(quotas)) > 1 else f"{len(quotas)} x {quotas[0]}"
        yield Row(
            name=f"{policy} {said}, kernels of {kernel_us / 1000:g} ms: worst share error",
            value=worst[True],
            unit="points",
            baseline=worst[False],
            target=1 if kernel_us <= 1000 else 2,
        )


def measure_single() -> Iterator[Row]:
    """In turns; enough kernels are queued that it is the card that is measured, and not how the program wakes
    up.
    """
    rates: dict[bool, list[float]] = {True: [], False: []}
    for schedule in (True, False) * 3:
        with node(schedule=schedule, policy="native-burst-share") as mgpu:
            with load(mgpu, "saturate", "--kernel-us", "50", "--queue", "64", "--seconds", "3") as one:
                [done] = one.result()["devices"]
        rates[schedule].append(done["kernels"] / done["seconds"])
    rate = {schedule: median(found) for schedule, found in rates.items()}
    yield Row(
        name="a single tenant's kernels of 50 us, with the scheduler over without",
        value=rate[True] / rate[False],
        unit="x",
        target=0.99,
        better="higher",
    )


def measure(built: Programs) -> list[Row]:
    with host.home("bench") as shared:
        return [
            *measure_timer(built),
            *measure_preemption(shared),
            *measure_curve(shared, built),
            *measure_interference(shared),
            *measure_harvest(shared),
            *measure_shares(),
            *measure_single(),
        ]
