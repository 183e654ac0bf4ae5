"""Classes and policies on running containers. The judge is the simulated card's own account, never the
arbiter's.
"""

import itertools
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from sim.cards import Span
from tests.support import arbiter
from tests.support.arbiter import Arbiter
from tests.support.colocation import BURST_REQUESTS, NOISE_MS, busy_times
from tests.support.load import (
    Load,
    bound,
    groups_of,
    load,
    near,
    runs,
    shares_become,
    spans,
    time_of,
    working,
)
from tests.support.waiting import prompt, took_s, until

MS = 1_000_000
S = 1_000_000_000
HOLD_MS = 40
# What is queued outlasts a client's wait for a CPU.
SATURATE = ("saturate", "--kernel-us", "1000", "--queue", "64")


@pytest.fixture(params=["v100-16"])
def held(request: pytest.FixtureRequest, private_host: None) -> Iterator[Arbiter]:
    """mgpu with a short hold."""
    with arbiter.running(
        request.param, node_config=f"hold_ms = {HOLD_MS}\npolicy = 'native-burst-share'\n"
    ) as up:
        yield up


def long_kernel(seconds: int) -> tuple[str, ...]:
    return "saturate", "--kernel-us", str(seconds * 1_000_000), "--queue", "1", "--kernels", "1"


def wait_suspended(one: Load) -> None:
    until(lambda: not one.row()["sched"]["enabled"], f"{one.name} is suspended")


def off(found: list[Span], pid: int) -> list[tuple[int, int]]:
    """(from, to) of the times that the card's own account has the process's group disabled."""
    changes = [span for span in found if span.tgid == pid and span.kind in ("disable", "enable")]
    return [
        (before.end_ns, after.start_ns)
        for before, after in itertools.pairwise(changes)
        if (before.kind, after.kind) == ("disable", "enable")
    ]


def test_online_work_takes_the_card_at_once_and_for_itself(held: Arbiter) -> None:
    for kernel_s in (3, 15):
        with load(held, *long_kernel(kernel_s), qos="offline") as offline:
            working(offline)
            with load(
                held,
                *("burst", "--period-ms", "0", "--kernels", "2", "--kernel-us", "500"),
                *("--requests", str(BURST_REQUESTS)),
            ) as online:
                working(online)
                pids = offline.pid, online.pid
                reported = online.result()
            told = offline.result()
        found = spans(held)
        busy, theirs = busy_times(runs(found, pids[1]), HOLD_MS), runs(found, pids[0])
        end = busy[-1][1]
        if theirs[-1].end_ns > end:
            break
    # From suspend-complete to resume, which the card's own account shows, offline has nothing.
    times = off(found, pids[0])
    assert times
    for since, to in times:
        assert [span for span in theirs if span.end_ns > since and span.start_ns < to] == []
    # And that is so from soon after online's first work on until the hold is over.
    for since, to in busy:
        late = since + NOISE_MS * MS
        assert [span for span in theirs if span.end_ns > late and span.start_ns < to] == []
    resumed = next(span.start_ns for span in theirs if span.start_ns > end)
    assert HOLD_MS * MS <= resumed - end < (HOLD_MS + NOISE_MS) * MS
    # It goes on where it stopped: the whole of its one kernel, once.
    [group] = [one for one in groups_of(held, pids[0]) if one.kernels]
    assert (group.kernels, group.kernel_ns, group.run_ns) == (1, kernel_s * S, kernel_s * S)
    assert told["devices"][0]["kernels"] == 1
    assert reported["requests"] == BURST_REQUESTS


def test_hold_of_0_gives_the_card_back_at_once(private_host: None) -> None:
    """Between two requests, where the usual hold would outlast the pause."""
    burst = ("burst", "--period-ms", "100", "--kernels", "1", "--kernel-us", "20000", "--requests", "10")
    with arbiter.running("v100-16", node_config="hold_ms = 0\npolicy = 'native-burst-share'\n") as mgpu:
        with load(mgpu, *SATURATE, "--seconds", "600", qos="offline") as offline:
            working(offline)
            with load(mgpu, *burst) as online:
                working(online)
                pids = offline.pid, online.pid
                online.result()
            offline.stop()
        found = spans(mgpu)
    theirs = runs(found, pids[0])
    pauses = [
        next(span.start_ns for span in theirs if span.start_ns > mine.end_ns) - mine.end_ns
        for mine in runs(found, pids[1])
        if mine.end_ns - mine.start_ns > 15 * MS
    ]
    assert min(pauses) < 50 * MS


def start(stack: ExitStack, mgpu: Arbiter, core: int | None, qos: str, *args: str) -> Load:
    one = stack.enter_context(load(mgpu, *(args or (*SATURATE, "--seconds", "60")), qos=qos, core=core))
    working(one)
    return one


@pytest.mark.parametrize("qos", ["online", "offline"])
@pytest.mark.parametrize("quotas", [(30, 70), (25, 25, 50)])
def test_fixed_share(private_host: None, quotas: tuple[int, ...], qos: str) -> None:
    with arbiter.running("v100-16", node_config="policy = 'fixed-share'\n") as mgpu, ExitStack() as stack:
        loads = [start(stack, mgpu, core, qos) for core in quotas]
        shares_become(mgpu, [one.pid for one in loads], near(quotas, 3))


def test_fixed_share_on_an_idle_card_stays_at_the_quota(private_host: None) -> None:
    with arbiter.running("v100-16", node_config="policy = 'fixed-share'\n") as mgpu, ExitStack() as stack:
        shares_become(mgpu, [start(stack, mgpu, 30, "online").pid], near([30], 3))


def test_guaranteed_burst_share_uses_idle_time_and_returns_it(private_host: None) -> None:
    config = "policy = 'guaranteed-burst-share'\n"
    with arbiter.running("v100-16", node_config=config) as mgpu, ExitStack() as stack:
        small = start(stack, mgpu, 20, "offline")
        shares_become(mgpu, [small.pid], lambda got: got[0] > 95)
        large = start(stack, mgpu, 60, "offline")
        shares_become(mgpu, [small.pid, large.pid], near([25, 75], 4))


def test_native_burst_share_is_equal(private_host: None) -> None:
    config = "policy = 'native-burst-share'\n"
    with arbiter.running("v100-16", node_config=config) as mgpu, ExitStack() as stack:
        loads = [start(stack, mgpu, core, "offline") for core in (10, 20, 70)]
        shares_become(mgpu, [one.pid for one in loads], near([100 / 3] * 3, 4))


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("fixed-share", (30, 50)),
        ("guaranteed-burst-share", (37.5, 62.5)),
        ("native-burst-share", (50, 50)),
    ],
)
def test_online_shares_by_policy_and_offline_waits(
    private_host: None, policy: str, expected: tuple[float, ...]
) -> None:
    """Also where online is throttled by its own quota: it has work, so offline has nothing."""
    with arbiter.running("v100-16", node_config=f"policy = {policy!r}\n") as mgpu, ExitStack() as stack:
        offline = start(stack, mgpu, 40, "offline")
        loads = [start(stack, mgpu, core, "online") for core in (30, 50)]
        wait_suspended(offline)
        shares_become(mgpu, [one.pid for one in (*loads, offline)], near([*expected, 0], 4))


@pytest.mark.parametrize("held", ["v100-16:2"], indirect=True)
def test_container_on_two_cards_pauses_as_one(held: Arbiter) -> None:
    with ExitStack() as stack:
        gang = stack.enter_context(
            load(held, *SATURATE, "--device", "0,1", "--linked", "--seconds", "600", qos="offline", gpus=2)
        )
        for card in (0, 1):
            working(gang, card)
        online = stack.enter_context(
            load(
                held,
                "burst",
                "--period-ms",
                "0",
                "--kernels",
                "1",
                "--kernel-us",
                "1000",
                "--seconds",
                "600",
            )
        )
        bound(online)
        card = online.row()["cards"][0]["index"]
        working(online, card)
        wait_suspended(gang)
        pid, other = gang.pid, online.pid

        def pauses_as_one() -> bool:
            """On both cards, while online works on one of them: what a pause of online's own lets back counts
            not.
            """
            before = [*(time_of(held, pid, index) for index in (0, 1)), time_of(held, other, card)]
            time.sleep(0.3)
            after = [*(time_of(held, pid, index) for index in (0, 1)), time_of(held, other, card)]
            return before[:2] == after[:2] and before[2] < after[2]

        until(pauses_as_one, "it stands still on both GPUs")
        online.stop()
        assert gang.stop()["devices"][1]["kernels"] > 0


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_suspended_container_ends_within_a_second(held: Arbiter, end: signal.Signals) -> None:
    def ends() -> float:
        with load(
            held, "saturate", "--kernel-us", "10000000", "--queue", "2", "--seconds", "60", qos="offline"
        ) as offline:
            until(lambda: len(held.containers()) == 2 and offline.row()["sched"]["busy"], "offline has work")
            wait_suspended(offline)
            os.kill(offline.pid, end)
            return took_s(lambda: until(lambda: len(held.containers()) == 1, "it is gone"))

    with load(
        held, "burst", "--period-ms", "0", "--kernels", "1", "--kernel-us", "1000", "--seconds", "600"
    ) as online:
        working(online)
        prompt(ends, "a suspended container's end")
