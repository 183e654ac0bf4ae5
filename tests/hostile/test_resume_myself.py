"""A tenant that asks for its own channels to run: it is answered, and runs when the scheduler lets it."""

import time

from tests.support import arbiter
from tests.support.load import load, runs, spans, working
from tests.support.programs import Programs
from tests.support.waiting import until


def test_suspended_tenant_cannot_resume_itself(private_host: None, built: Programs) -> None:
    env = {"MGPU_MEMORY_MIB": "4096", "MGPU_QOS": "offline"}
    with (
        arbiter.running("v100-16", node_config="hold_ms = 200\n") as mgpu,
        built.bundle("resume", "4", env=env) as made,
        made.running(mgpu.runtime) as hostile,
    ):
        assert hostile.line() == "ready"
        [row] = mgpu.containers()
        until(lambda: bool(runs(spans(mgpu), row["pid"])), "it runs while the card is its own")
        with load(
            mgpu, "burst", "--period-ms", "50", "--kernels", "1", "--kernel-us", "1000", "--seconds", "2"
        ) as online:
            working(online)
            online.result()
        assert int(hostile.line().removeprefix("tried ")) > 1000
        events = mgpu.ask("timeline", since=0)["events"]
        mine = runs(spans(mgpu), row["pid"])
        now = time.monotonic_ns()
    turns = [
        (at, kind)
        for at, _, grant, kind, *_ in events
        if grant == row["id"] and kind in ("suspended", "resume")
    ]
    turns.append((now, "looked"))
    off = [(at, turns[i + 1][0]) for i, (at, kind) in enumerate(turns[:-1]) if kind == "suspended"]
    assert max(end - begin for begin, end in off) > 1_000_000_000
    for begin, end in off:
        assert [span for span in mine if span.end_ns > begin and span.start_ns < end] == []
