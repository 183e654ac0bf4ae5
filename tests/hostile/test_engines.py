"""Offline with work on every kind of engine: none makes a nanosecond while it is suspended, and all go on."""

from sim.cards import GroupTime
from tests.support import arbiter
from tests.support.arbiter import Arbiter
from tests.support.engines import ENGINES, OFFLINE
from tests.support.load import load, working
from tests.support.programs import Programs
from tests.support.waiting import until

MS = 1_000_000


def groups_of(mgpu: Arbiter, pid: int) -> dict[str, GroupTime]:
    """Its one group on each engine."""
    engines = mgpu.account().cards[0].engines
    return {group.engine: group for engine in engines for group in engine.groups if group.tgid == pid}


def ran_ns(mgpu: Arbiter, pid: int) -> dict[str, int]:
    return {name: group.run_ns for name, group in groups_of(mgpu, pid).items()}


def all_go_on(mgpu: Arbiter, pid: int) -> None:
    before = ran_ns(mgpu, pid)
    until(lambda: all(ns > before[name] for name, ns in ran_ns(mgpu, pid).items()), "all engines work")


def test_suspended_container_makes_nothing_on_any_engine(private_host: None, built: Programs) -> None:
    with (
        arbiter.running("h200:1") as mgpu,
        built.bundle("engines", *ENGINES, env=OFFLINE) as made,
        made.running(mgpu.runtime) as running,
    ):
        assert running.line() == "works"
        [container] = mgpu.containers()
        pid = container["pid"]
        assert set(groups_of(mgpu, pid)) == set(ENGINES)
        all_go_on(mgpu, pid)
        until(lambda: mgpu.containers()[0]["sched"]["video_ns"] > 0, "its work on the decoder is seen")
        with load(mgpu, "saturate", "--kernel-us", "1000", "--seconds", "600") as online:
            working(online)
            until(lambda: not any(one.open for one in groups_of(mgpu, pid).values()), "offline is suspended")
            before, busy = ran_ns(mgpu, pid), mgpu.account().cards[0].engines[0].busy_ns
            until(lambda: mgpu.account().cards[0].engines[0].busy_ns > busy + 500 * MS, "online works on")
            assert ran_ns(mgpu, pid) == before
            [beside] = [row for row in mgpu.containers() if row["pid"] != pid]
            assert (beside["sched"]["run_ns"] > 0, beside["sched"]["video_ns"]) == (True, 0)
            online.stop()
        all_go_on(mgpu, pid)
        assert not any(one.errors for one in groups_of(mgpu, pid).values())
