"""Colocation where it cannot be seen what the engines execute, and where the driver disables no channels."""

import pytest

from tests.support import arbiter
from tests.support.arbiter import Arbiter
from tests.support.colocation import MS
from tests.support.load import load, runs, shares_become, spans, working

HOLD_MS, QUIET_MS = 40, 30
CONFIG = f"hold_ms = {HOLD_MS}\nquiet_ms = {QUIET_MS}\npolicy = 'native-burst-share'\n"
REQUESTS, PERIOD_MS = 6, 400
LONG_KERNEL = ("saturate", "--kernel-us", "600000000", "--queue", "1", "--kernels", "1")
BURST = ("burst", "--period-ms", str(PERIOD_MS), "--kernels", "2", "--kernel-us", "500")
# Fetched before it is executed.
KERNELS_MS = 5


# Far longer than the quiet time and the hold together.
KERNEL_MS = 5000
ONE_KERNEL = ("saturate", "--kernel-us", str(KERNEL_MS * 1000), "--queue", "1", "--kernels", "1")
SATURATE = ("saturate", "--kernel-us", "1000", "--queue", "16", "--seconds", "600")


def log_of(mgpu: Arbiter) -> str:
    return (mgpu.root / "log" / "mgpud.log").read_text()


@pytest.mark.parametrize("disables", [1, 0], ids=["by-disabling", "by-runlist"])
def test_offline_is_back_between_onlines_requests(private_host: None, disables: int) -> None:
    options = ["engine-status=0", f"disable-channels={disables}"]
    with arbiter.running("v100-16", sim_options=options, node_config=CONFIG) as mgpu:
        with load(mgpu, *LONG_KERNEL, qos="offline") as offline:
            working(offline)
            with load(mgpu, *BURST, "--requests", str(REQUESTS)) as online:
                working(online)
                pids = offline.pid, online.pid
                said = mgpu.mgpu("describe", offline.name)
                assert online.result()["requests"] == REQUESTS
            found = spans(mgpu)
            assert offline.row()["sched"]["preemptions"] > 1
        log = log_of(mgpu)
    mine = runs(found, pids[1])
    resumes = [span.start_ns for span in found if span.tgid == pids[0] and span.kind == "enable"]
    pauses = [
        at - max(span.end_ns for span in mine if span.end_ns < at) for at in resumes if at > mine[0].start_ns
    ]
    # The last is after online's end, from which the hold counts.
    assert len(pauses) > 1, "offline was never back while online waited"
    assert min(pauses[:-1]) >= (HOLD_MS + QUIET_MS - KERNELS_MS) * MS
    assert "idle by samples of its use" in said
    assert ("suspended by runlist only" in said) is not bool(disables)
    assert log.count("event=driver-without card=0 what=engine-status") == 1
    assert log.count("event=driver-without card=0 what=disable-channels") == (0 if disables else 1)


@pytest.mark.parametrize("card", ["v100-16", "rtx-5090"], ids=["by-fetch", "by-put"])
def test_offline_has_0_ns_inside_a_long_kernel_of_online(private_host: None, card: str) -> None:
    with arbiter.running(card, sim_options=["engine-status=0"], node_config=CONFIG) as mgpu:
        with load(mgpu, *SATURATE, qos="offline") as offline:
            working(offline)
            with load(mgpu, *ONE_KERNEL) as online:
                working(online)
                pids = offline.pid, online.pid
                online.result()
            shares_become(mgpu, [pids[0]], lambda got: got[0] > 90)
            found = spans(mgpu)
    [kernel] = runs(found, pids[1])
    assert kernel.end_ns - kernel.start_ns >= KERNEL_MS * MS, "nothing of offline's was between"
    inside = [one for one in runs(found, pids[0]) if kernel.start_ns <= one.start_ns < kernel.end_ns]
    assert not inside
