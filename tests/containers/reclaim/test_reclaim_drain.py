"""An offline container beside online work while it is evicted: it completes what it has submitted, for so
long as the node says, and nothing else. The judge is the simulated card's own account.
"""

import json
from collections.abc import Iterator

import pytest

from sim.cards import Span
from tests.support import arbiter
from tests.support.arbiter import Arbiter
from tests.support.colocation import NOISE_MS, busy_times
from tests.support.lending import CARD_MIB, LENDS, OFFLINE, holder, started, taker, turn
from tests.support.load import groups_of, load, runs, spans, working
from tests.support.programs import Programs
from tests.support.waiting import until

MIB, MS = 1 << 20, 1_000_000
DRAIN_MS, HOLD_MS = 500, 40
CONFIG = f"{LENDS}evict_drain_ms = {DRAIN_MS}\nhold_ms = {HOLD_MS}\npolicy = 'native-burst-share'\n"
RECLAIMABLE = {"mgpu.dev/memory-reclaimable": "true"}
BUSY = ("saturate", "--kernel-us", "1000", "--queue", "64", "--seconds", "600")
CONTEXT_MIB, BUSY_MIB = 200, 256


@pytest.fixture
def mgpu(private_host: None) -> Iterator[Arbiter]:
    with arbiter.running("v100-16:1", node_config=CONFIG) as running:
        yield running
        arbiter.until_empty(running)


def free_mib(mgpu: Arbiter) -> int:
    [card] = mgpu.account().cards
    return CARD_MIB - card.used_bytes // MIB


def drains(mgpu: Arbiter, grant: str) -> list[tuple[int, int]]:
    """(from, to) of its evictions, by the scheduler's own events."""
    found, since = [], 0
    for at, _since, whose, kind, _card, _why in mgpu.ask("timeline", since=0)["events"]:
        if whose == grant and kind == "drain":
            since = since or at
        elif whose == grant and kind == "drained":
            found.append((since, at))
            since = 0
    return found


def beside(theirs: list[Span], online: list[Span]) -> list[Span]:
    """Their runs that are beside online's work, once that was seen."""
    busy = busy_times(online, HOLD_MS)
    return [
        span
        for span in theirs
        if any(span.end_ns > since + NOISE_MS * MS and span.start_ns < to for since, to in busy)
    ]


def test_work_that_does_not_complete_in_time_is_suspended_again_and_the_next_is_evicted(
    mgpu: Arbiter, built: Programs
) -> None:
    long = load(
        mgpu, *("saturate", "--kernel-us", "3000000", "--queue", "1", "--kernels", "1"),
        qos="offline", annotations=RECLAIMABLE,
    )  # fmt: skip
    with long as first, started(mgpu, built, OFFLINE, *holder(mib=300)) as second:
        working(first)
        assert second.program.line() == "held 0"
        with load(mgpu, *BUSY, memory_mib=BUSY_MIB) as busy:
            working(busy)
            # The first alone would do, and has the least to move.
            more_mib = free_mib(mgpu) - CONTEXT_MIB // 2
            with taker(mgpu, built, more_mib, CARD_MIB - BUSY_MIB) as online:
                grant, pid, busy_pid = first.row()["id"], first.pid, busy.pid
                turn(online)
                second.until("evicted")
                assert "not ready" in first.row()["reclaim"]["not_moved"]
                [(since, to)] = drains(mgpu, grant)
                assert to - since <= (DRAIN_MS + NOISE_MS) * MS
                shown = json.loads(mgpu.mgpu("timeline", "--last", "60", "-o", "json"))["rows"]
                kinds = {row["kind"] for row in shown if first.name.startswith(row["label"])}
                assert kinds >= {"run", "drain", "suspended"}
                turn(online)
            busy.stop()
            # Its copies back wait for online's work.
            second.until("running")
        told = first.result()
        found = spans(mgpu)
        ran = beside(runs(found, pid), runs(found, busy_pid))
        assert ran
        assert all(since <= span.start_ns and span.end_ns <= to + NOISE_MS * MS for span in ran)
        [group] = [one for one in groups_of(mgpu, pid) if one.kernels]
        assert (group.kernels, group.kernel_ns) == (1, 3000 * MS), "its kernel was done once, and whole"
        assert told["devices"][0]["kernels"] == 1


def test_kernels_are_done_once_and_whole_whoever_evicts(mgpu: Arbiter, built: Programs) -> None:
    kernels, kernel_us = 300, 10_000
    work = "saturate", "--kernel-us", str(kernel_us), "--queue", "4", "--kernels", str(kernels)
    with load(mgpu, *work, qos="offline", annotations=RECLAIMABLE) as offline, taker(mgpu, built) as online:
        working(offline)
        pid, name = offline.pid, offline.name
        for _ in range(3):
            turn(online)
            until(lambda: offline.row()["reclaim"]["state"] == "evicted", f"{name} is evicted")
            turn(online)
            until(lambda: offline.row()["reclaim"]["state"] == "running", f"{name} is back")
        told = offline.result()
        groups = groups_of(mgpu, pid)
    assert len(groups) == 4, "the first, and one for each time that it came back"
    assert sum(group.kernels for group in groups) == kernels
    assert sum(group.kernel_ns for group in groups) == kernels * kernel_us * 1000
    assert told["devices"][0]["kernels"] == kernels
