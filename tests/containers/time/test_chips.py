"""Colocation on each kind of chip. Work is seen in another way on some: by what is fetched and what executes,
or by what executes alone. Engines have their status somewhere else.
"""

import time
from collections.abc import Iterator

import pytest

from tests.support import arbiter, chips
from tests.support.arbiter import Arbiter
from tests.support.colocation import MS
from tests.support.load import load, runs, shares_become, spans, time_of, working
from tests.support.programs import Programs
from tests.support.waiting import until

HOLD_MS = 20
SATURATE = ("saturate", "--kernel-us", "1000", "--queue", "16", "--seconds", "600")
# Has worked, and has nothing more to do for an hour.
ONCE = ("burst", "--period-ms", "3600000", "--kernels", "1", "--kernel-us", "100", "--requests", "2")
KERNEL_MS, WATCHED_S = 2500, 1.5
ONE_KERNEL = ("saturate", "--kernel-us", str(KERNEL_MS * 1000), "--queue", "1", "--kernels", "1")
COPY_MIB = 1 << 20  # 20 s and more


@pytest.fixture(scope="module", params=chips.KINDS)
def kind(request: pytest.FixtureRequest, private_host: None) -> Iterator[Arbiter]:
    with arbiter.running(request.param, node_config=f"hold_ms = {HOLD_MS}\n") as mgpu:
        yield mgpu


def off_for(mgpu: Arbiter, pid: int, seconds: float, why: str) -> None:
    """Once it is suspended, it gets 0 ns of the card for so long."""
    since = [-1]

    def still() -> bool:
        before, since[0] = since[0], time_of(mgpu, pid)
        return before == since[0]

    until(still, "offline is suspended", poll_s=0.1)
    time.sleep(seconds)
    assert time_of(mgpu, pid) == since[0], why


def test_offline_has_the_card_while_online_that_worked_is_idle(kind: Arbiter) -> None:
    with load(kind, *ONCE) as online, load(kind, *SATURATE, qos="offline") as offline:
        working(online)
        working(offline)
        shares_become(kind, [offline.pid], lambda got: got[0] > 90)


def test_offline_is_off_while_a_kernel_of_online_executes_that_was_fetched(kind: Arbiter) -> None:
    with load(kind, *SATURATE, qos="offline") as offline:
        working(offline)
        with load(kind, *ONE_KERNEL) as online:
            working(online)
            pids = offline.pid, online.pid
            off_for(kind, pids[0], WATCHED_S, "offline ran inside online's kernel")
            online.result()
        until(lambda: time_of(kind, pids[0]) > 0 and runs(spans(kind), pids[0])[-1].end_ns
              > runs(spans(kind), pids[1])[-1].end_ns, "offline is back")  # fmt: skip
    mine, theirs = runs(spans(kind), pids[1])[-1], runs(spans(kind), pids[0])
    back = min(span.start_ns for span in theirs if span.start_ns >= mine.end_ns)
    assert back - mine.end_ns >= (HOLD_MS - 1) * MS


def test_long_copy_on_an_engine_that_shares_the_runlist_is_work(kind: Arbiter, built: Programs) -> None:
    with load(kind, *SATURATE, qos="offline") as offline:
        working(offline)
        env = {"MGPU_MEMORY_MIB": "512", "MGPU_QOS": "online"}
        with built.bundle("copier", str(COPY_MIB << 20), env=env) as made:
            with made.running(kind.runtime) as online:
                assert online.line() == "copies"
                off_for(kind, offline.pid, WATCHED_S, "offline ran beside online's copy")
        shares_become(kind, [offline.pid], lambda got: got[0] > 90)
