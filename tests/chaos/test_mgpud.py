"""mgpud is killed, stopped, starved and slowed down while containers work, and none of them notices."""

import os
import signal
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from oci_specs import paths
from sim import cards
from tests.chaos import field as fields
from tests.chaos.faults import removed
from tests.chaos.field import NS_PER_MS, Field, end, field_of, percentile
from tests.chaos.passers_by import PassersBy
from tests.support import arbiter, host
from tests.support.brief import nursery
from tests.support.load import load, working
from tests.support.programs import Programs
from tests.support.waiting import until

# What a machine that does other things too may take for one of them.
RECOVERY_MAX_MS = 20_000
# The target, which the soak is held to, on a machine that does nothing else.
RECOVERY_P99_MS = 300
JUDGED_EVERY = 5
SATURATE = ("saturate", "--kernel-us", "2000", "--queue", "16")


@dataclass(frozen=True)
class Size:
    """containers that work, kills with up to pause_s between an answer and the next, containers that come and
    go.
    """

    containers: int
    kills: int
    passers_by: int
    pause_s: float = 0.5
    soak: bool = False


def soak(size: Size) -> object:
    return pytest.param(size, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])


@pytest.mark.parametrize("size", [Size(8, 30, 1), soak(Size(32, 500, 2, 1.0, soak=True))])
def test_kills_of_mgpud_leave_containers_steady(built: Programs, size: Size) -> None:
    chosen = fields.seed()
    many = -(-size.containers // fields.PER_CARD)
    with (
        field_of(built, size.containers, chosen, cards=f"h200:{many}") as field,
        PassersBy(field, size.passers_by) as passers_by,
    ):
        for number in range(1, size.kills + 1):
            time.sleep(field.random.random() * size.pause_s)
            field.mark()
            died_ns = field.kill_mgpud()
            field.served_once()
            if number % 3 == 0:
                field.over_cap()
            assert field.wait_for_answer(died_ns) < RECOVERY_MAX_MS
            field.well()
            if number % JUDGED_EVERY == 0:
                field.all_answered(died_ns)
                with passers_by.none_of_them():
                    field.judge()
        assert field.mgpu.ask("health")["generation"] > size.kills
        print(f"{field.report()}; {passers_by.count} containers came and went")
        assert passers_by.count > size.kills // 10
        if size.soak:
            assert percentile(sorted(field.recoveries_ms), 99) <= RECOVERY_P99_MS


def test_mgpud_that_is_told_to_end_leaves_calls_to_the_next(built: Programs) -> None:
    """As `systemctl restart mgpud` does, also where a library of the driver is not there for the next one."""
    chosen = fields.seed()
    with host.own(Path(paths.lib("sim"))), field_of(built, 4, chosen) as field:
        for number in range(12):
            field.mark()
            if number < 8:
                field.wait_for_answer(end(field.mgpu.pid_of("mgpud"), signal.SIGTERM))
            else:
                with removed(Path(paths.lib("sim/libcuda.so.1"))):
                    field.wait_for_answer(field.kill_mgpud())
            field.well()
        field.judge()


def offline_beside_online(field: Field, online: int, offline: int, since: int) -> list[tuple[int, int]]:
    """When the card executed the offline process, from entry `since` of its history on, while the online one
    had work, which is always.
    """
    found = cards.timeline(field.mgpu.root / "sim" / "admin.sock", 0, since)
    assert not found.lost
    first = min((span.start_ns for span in found.spans if span.tgid == online), default=0)
    return [
        (span.start_ns, span.end_ns)
        for span in found.spans
        if span.kind == "run" and span.tgid == offline and span.start_ns > first
    ]


def test_online_stays_protected(built: Programs) -> None:
    """Offline does not run while online has work, but for the time that a recovery takes."""
    chosen = fields.seed()
    with field_of(built, 1, chosen) as field, ExitStack() as stack:
        policy = "native-burst-share"
        offline = stack.enter_context(load(field.mgpu, *SATURATE, qos="offline", policy=policy))
        working(offline)
        online = stack.enter_context(load(field.mgpu, *SATURATE, qos="online", policy=policy))
        working(online)
        time.sleep(0.5)
        pids = online.pid, offline.pid
        since = cards.timeline(field.mgpu.root / "sim" / "admin.sock", 0).next
        windows = []
        for _ in range(4):
            time.sleep(field.random.random() * 0.5)
            field.mark()
            died_ns = field.kill_mgpud()
            took_ms = field.wait_for_answer(died_ns)
            windows.append((died_ns, died_ns + int(took_ms * NS_PER_MS)))
        time.sleep(0.3)
        beside = offline_beside_online(field, *pids, since)
        ran_ns = sum(end - begin for begin, end in beside)
        outside = [
            (begin, end)
            for begin, end in beside
            if not any(died <= begin and begin <= again for died, again in windows)
        ]
        recovering_ns = sum(again - died for died, again in windows)
        print(
            f"offline ran {ran_ns / NS_PER_MS:.1f} ms in {recovering_ns / NS_PER_MS:.0f} ms without a mgpud"
        )
        assert outside == []
        field.well()
        assert online.stop()["devices"][0]["kernels"] > 0
        before = fields.run_ns(field.mgpu, pids[1])
        time.sleep(0.5)
        assert fields.run_ns(field.mgpu, pids[1]) > before, "it goes on once online has ended"
        assert offline.stop()["devices"][0]["kernels"] > 0


def test_no_container_waits_for_what_is_asked_about_others(built: Programs) -> None:
    """A driver whose calls take 60 ms each is asked nothing by mgpud before its containers are served."""
    call_ms, count = 60, 5
    with ExitStack() as stack:
        mgpu = stack.enter_context(arbiter.running("h200:1", sim_options=[f"rm-call-us={call_ms * 1000}"]))
        lives = [stack.enter_context(nursery(mgpu, built)).begin() for _ in range(count)]
        for life in lives:
            life.work()
        until(lambda: mgpu.ask("health")["listeners"] == count, "all are served")
        before = mgpu.ask("health")["generation"]
        fields.end(mgpu.pid_of("mgpud"))
        until(lambda: mgpu.ask("health")["generation"] == before + 1, "the next one is there")
        recovered = mgpu.ask("health")["recovered"]
        assert recovered["listeners"] == count
        assert sum(recovered["stages_ms"][stage] for stage in ("tenants", "scheduler")) < count * call_ms
        for life in lives:
            life.call()
            life.end()


def test_stopped_mgpud_and_slow_driver_leave_containers_steady(built: Programs) -> None:
    """SIGSTOP for seconds, and a driver whose calls take long now and then."""
    chosen = fields.seed()
    slow = ("rm-tail-us=30000", "rm-tail-per-mille=20")
    with field_of(built, 4, chosen, sim_options=slow) as field:
        for _ in range(2):
            pid = field.mgpu.pid_of("mgpud")
            os.kill(pid, signal.SIGSTOP)
            time.sleep(1.5)
            field.over_cap()
            os.kill(pid, signal.SIGCONT)
            field.mark()
            died_ns = time.monotonic_ns()
            field.all_answered(died_ns)
            field.well()
            field.mark()
            field.wait_for_answer(field.kill_mgpud())
        field.judge()


def test_call_that_mgpud_was_about_to_let_go_on_holds_up_nobody(built: Programs) -> None:
    """Killed before it could. By the time the next one serves, a signal has taken the caller out of it."""
    with field_of(built, 2, fields.seed(), sim_options=("reread-us=30000",)) as field:
        for _ in range(12):
            field.mark()
            field.wait_for_answer(field.kill_mgpud())
            field.all_answered(time.monotonic_ns())
            field.well()
        field.judge()
