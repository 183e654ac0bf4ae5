"""What the scheduler's thread costs a node whose cards are all colocated, over a loop that only sleeps as
often.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from tests.bench.colocation import (
    DEFAULT_POLL_US,
    LONG_KERNEL,
    SHORT_HOLD_MS,
    node,
    polling,
    waiting_online,
)
from tests.bench.rows import Row
from tests.support.arbiter import Arbiter
from tests.support.colocation import row
from tests.support.load import Load, load, working
from tests.support.programs import Programs
from tests.support.waiting import until

# Its second request is an hour away.
WAITING = ("burst", "--period-ms", "3600000", "--kernels", "1", "--kernel-us", "100", "--requests", "2")
# Cards, and how many times the sleeping loop's time mgpud may take there.
NODES = ((1, 1.15), (4, 1.5), (8, 2.0))
TENANTS, TENANTS_MOST = 16, 2.0
TURNS = 5
SECONDS = 2.0
# So much of a card that no two of them fit on one.
OFFLINE_MIB = 9000


def used_ns(pid: int) -> int:
    """Exact, where /proc/PID/stat samples."""
    return sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat"))


def both(*pids: int) -> list[float]:
    """Each one's percent of a core, in the same time."""
    before, began = [used_ns(pid) for pid in pids], time.monotonic_ns()
    time.sleep(SECONDS)
    took_ns = time.monotonic_ns() - began
    return [(used_ns(pid) - was) * 100 / took_ns for pid, was in zip(pids, before, strict=True)]


def colocated(stack: ExitStack, mgpu: Arbiter, cards: int) -> None:
    """On each card online that waits and offline in a kernel of ten seconds."""
    for _ in range(cards):
        _worked(mgpu, stack.enter_context(load(mgpu, *WAITING)))
    for _ in range(cards):
        _worked(mgpu, stack.enter_context(load(mgpu, *LONG_KERNEL, qos="offline", memory_mib=OFFLINE_MIB)))
    on = sorted((one["cards"][0]["index"], one["class"]) for one in mgpu.containers())
    assert on == sorted((card, qos) for card in range(cards) for qos in ("online", "offline")), on
    time.sleep(1)


def _worked(mgpu: Arbiter, one: Load) -> None:
    until(lambda: row(mgpu, one.name) is not None, f"{one.name} is admitted")
    working(one, one.row()["cards"][0]["index"])


def one_card(stack: ExitStack, mgpu: Arbiter, tenants: int) -> None:
    """Half of them online that waits, half offline and busy."""
    for _ in range(tenants // 2):
        stack.enter_context(waiting_online(mgpu))
    for _ in range(tenants // 2):
        _worked(mgpu, stack.enter_context(load(mgpu, *LONG_KERNEL, qos="offline", memory_mib=512)))


def _rows(name: str, most: float, mgpu: Arbiter, built: Programs) -> Iterator[Row]:
    """The loop sleeps at the same time: what else the machine does makes both dearer."""
    with polling(built, DEFAULT_POLL_US) as floor:
        found = [both(mgpu.pid_of("mgpud"), floor) for _ in range(TURNS)]
    yield Row(
        name=f"mgpud, {name}: over a loop that sleeps as often",
        value=median(ours / bare for ours, bare in found),
        unit="x",
        target=most,
    )
    yield Row(
        name=f"mgpud, {name}: share of a core, beside that loop's",
        value=median(ours for ours, _ in found),
        unit="%",
        baseline=median(bare for _, bare in found),
    )


def measure(built: Programs) -> Iterator[Row]:
    for cards, most in NODES:
        with node(f"v100-16:{cards}", hold_ms=SHORT_HOLD_MS) as mgpu, ExitStack() as stack:
            colocated(stack, mgpu, cards)
            yield from _rows(f"{cards} colocated card{'s' if cards > 1 else ''}", most, mgpu, built)
    with node(policy="native-burst-share") as mgpu, ExitStack() as stack:
        one_card(stack, mgpu, TENANTS)
        yield from _rows(f"a card with {TENANTS} tenants, half offline and busy", TENANTS_MOST, mgpu, built)
