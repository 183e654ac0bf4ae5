"""What mgpu adds to a container's start and to the other verbs of the runtime."""

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from tests.bench.rows import Row, quantile
from tests.support.arbiter import Arbiter
from tests.support.bundle import Bundle, bundle

ALONE = 40
CONCURRENT = 20
VERBS = 60
ENV = {"MGPU_MEMORY_MIB": "512"}
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def measure(mgpu: Arbiter) -> list[Row]:
    return [*_alone(mgpu), *_concurrent(mgpu), *_verbs(mgpu)]


def _ms_of(made: Bundle, runtime: str | Path) -> float:
    start = time.monotonic()
    made.output(runtime)
    return (time.monotonic() - start) * 1000


def _alone(mgpu: Arbiter) -> list[Row]:
    """Start to end of a container that does nothing, one at a time, plain and mediated by turns."""
    plain: list[float] = []
    ours: list[float] = []
    with bundle("true") as without, bundle("true", env=ENV) as granted:
        for _ in range(ALONE):
            plain.append(_ms_of(without, "runc"))
            ours.append(_ms_of(granted, mgpu.runtime))
    extra = median(ours) - median(plain)
    return [
        Row(
            name="container run with a grant, over plain runc, p50",
            value=extra,
            unit="ms",
            baseline=median(plain),
            target=40,
        ),
        Row(
            name="container run with a grant, p99",
            value=quantile(ours, 0.99),
            unit="ms",
            baseline=quantile(plain, 0.99),
        ),
    ]


def _cpu_ms(pid: int) -> float:
    """CPU time of a process so far, without its children's."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / TICKS_PER_S


def _together(bundles: Sequence[Bundle], runtime: str | Path) -> float:
    """CPU ms of running all bundles at once, their hooks and the container's own included."""
    before = os.times()
    processes = [
        subprocess.Popen(
            made.run_argv(runtime),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        for made in bundles
    ]
    for process in processes:
        assert process.wait() == 0
    after = os.times()
    return 1000 * (
        after.children_user + after.children_system - before.children_user - before.children_system
    )


def _concurrent(mgpu: Arbiter) -> list[Row]:
    daemons = [mgpu.pid_of(name) for name in ("mgpud", "holder")]
    plain: list[float] = []
    ours: list[float] = []
    with ExitStack() as stack:
        without = [stack.enter_context(bundle("true")) for _ in range(CONCURRENT)]
        granted = [stack.enter_context(bundle("true", env=ENV)) for _ in range(CONCURRENT)]
        for _ in range(3):
            plain.append(_together(without, "runc") / CONCURRENT)
            before = sum(map(_cpu_ms, daemons))
            children = _together(granted, mgpu.runtime)
            ours.append((children + sum(map(_cpu_ms, daemons)) - before) / CONCURRENT)
    return [
        Row(
            name=f"CPU per start, {CONCURRENT} at once, over plain runc",
            value=median(ours) - median(plain),
            unit="ms",
            baseline=median(plain),
            target=60,
        )
    ]


@contextmanager
def _sleeping(made: Bundle, runtime: str | Path) -> Iterator[None]:
    with made.running(runtime) as running:
        assert running.line() == "up"
        yield
        made.call(runtime, "kill", made.container, "KILL")


def _verbs(mgpu: Arbiter) -> list[Row]:
    plain: list[float] = []
    ours: list[float] = []
    with bundle("sh", "-c", "echo up; exec sleep 600", env=ENV) as made, _sleeping(made, mgpu.runtime):
        for _ in range(VERBS):
            for runtime, took in (("runc", plain), (mgpu.runtime, ours)):
                start = time.monotonic()
                made.call(runtime, "state", made.container)
                took.append((time.monotonic() - start) * 1000)
    return [
        Row(
            name="another verb (state), over plain runc, p50",
            value=median(ours) - median(plain),
            unit="ms",
            baseline=median(plain),
            target=3,
        )
    ]
