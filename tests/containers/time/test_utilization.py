"""GPU utilisation as containers see it, by nvidia-ml-py and gpustat: their own only."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tests.support import arbiter
from tests.support.arbiter import Arbiter
from tests.support.bundle import bundle
from tests.support.load import INSIDE, MEMORY_MIB, load, mounts, working
from tests.support.scrape import scrape
from tests.support.started import Foreground, foreground
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("private_host")

# What a noisy machine may take off, in points: a client that is kept from its processor leaves the card idle.
NOISE = 12
# Loads itself when told, and says after each line what it sees.
MONITOR = f"""
import ctypes, json, subprocess, sys, pynvml
pynvml.nvmlInit()
card, *others = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
work = []
for line in sys.stdin:
    if line == "start\\n":
        work.append(subprocess.Popen(
            ["{INSIDE}", "saturate", "--kernel-us", "1000", "--queue", "64", "--seconds", "600"],
            stdout=subprocess.DEVNULL))
    if line == "copy\\n":
        cuda, memory = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64()
        failed = cuda.cuInit(0) or cuda.cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, 1)
        assert not failed and not cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(64))
        assert not cuda.cuMemcpyHtoD_v2(memory, bytes(64), ctypes.c_size_t(64))
    if line == "stop\\n":
        for one in work:
            one.terminate()
            one.wait()
        work.clear()
    rates = pynvml.nvmlDeviceGetUtilizationRates(card)
    try:
        processes = [[one.pid, one.smUtil] for one in pynvml.nvmlDeviceGetProcessUtilization(card, 0)]
    except pynvml.NVMLError_NotFound:
        processes = []
    gpustat = None
    if line == "gpustat\\n":
        done = subprocess.run(["gpustat", "--json"], check=True, capture_output=True, text=True)
        gpustat = json.loads(done.stdout)["gpus"][0]["utilization.gpu"]
    seen = dict(gpu=rates.gpu, memory=rates.memory, processes=processes, gpustat=gpustat)
    seen["work"] = [one.pid for one in work]
    seen["others"] = [pynvml.nvmlDeviceGetUtilizationRates(one).gpu for one in others]
    print(json.dumps(seen), flush=True)
"""


class Monitor:
    """A container with the monitor in it. seen: the last that it said."""

    def __init__(self, running: Foreground, name: str) -> None:
        self.running = running
        self.name = name
        self.seen: dict[str, Any] = {}

    def look(self, word: str = "look") -> dict[str, Any]:
        self.running.tell(word)
        self.seen = json.loads(self.running.line())
        return self.seen

    def comes_to_see(self, good: Callable[[int], bool], what: str) -> None:
        until(lambda: good(self.look()["gpu"]), what, poll_s=0.1)


@contextmanager
def monitor(mgpu: Arbiter, **env: str) -> Iterator[Monitor]:
    given = {"MGPU_MEMORY_MIB": str(MEMORY_MIB), "MGPU_QOS": "online", **env}
    with bundle("python3", "-c", MONITOR, env=given, mounts=mounts()) as made:
        with made.running(mgpu.runtime) as running:
            yield Monitor(running, made.container)


def busy(seen: int) -> bool:
    return seen >= 100 - NOISE


def idle(seen: int) -> bool:
    return seen == 0


def test_lone_container_sees_its_utilization() -> None:
    with arbiter.running("v100-16", node_config="policy = 'native-burst-share'\n") as mgpu:
        with monitor(mgpu) as one:
            assert one.look()["gpu"] == 0
            assert one.seen["processes"] == []
            one.look("start")
            one.comes_to_see(busy, "its work is seen")
            # The pid is that of its own process in its own pid namespace.
            assert [pid for pid, _ in one.seen["processes"]] == one.seen["work"]
            assert one.seen["work"][0] < 100
            # Another program. Its start may take the client's processor for a moment.
            until(lambda: busy(one.look("gpustat")["gpustat"]), "gpustat sees its work")
            one.look("stop")
            one.comes_to_see(idle, "its work has ended")
        until(lambda: mgpu.containers() == [], "it has ended")


def ran_s(mgpu: Arbiter) -> float:
    """What the container that was charged most was charged for."""
    return float(max(row["sched"]["run_ns"] for row in mgpu.containers())) / 1e9


def looks(mgpu: Arbiter) -> float:
    return scrape(mgpu.root).one("mgpu_scheduler_polls_total")


def nobody_looks(mgpu: Arbiter) -> bool:
    """At no card, for 300 times as long as from one look to the next."""
    before = looks(mgpu)
    time.sleep(0.3)
    return looks(mgpu) == before


def test_card_is_polled_while_a_program_may_ask() -> None:
    """So that who asks once is told something, and who is alone pays for it only then."""
    script = "import pynvml; pynvml.nvmlInit(); print('there'); input()"
    with (
        arbiter.running("v100-16", node_config="policy = 'native-burst-share'\n") as mgpu,
        load(mgpu, "saturate", "--kernel-us", "1000", "--queue", "64", "--seconds", "600") as alone,
    ):
        working(alone)
        until(lambda: (mgpu.root / "metrics.sock").exists(), "metrics are served")
        until(lambda: nobody_looks(mgpu), "nobody looks at who is alone")
        ran_ns = alone.row()["sched"]["run_ns"]
        before = looks(mgpu)
        argv = alone.made.argv(mgpu.runtime, "exec", alone.name, "python3", "-c", script)
        with foreground(argv) as newcomer:
            assert newcomer.line() == "there"
            until(lambda: looks(mgpu) > before + 100, "the card is looked at")
            until(lambda: alone.row()["sched"]["busy"], "and its work is seen")
            until(lambda: nobody_looks(mgpu), "nobody has asked")
        # What was not polled was charged to no tenant, and what was is less than all of the time since.
        row = alone.row()["sched"]
        assert not row["busy"]
        assert 0 < row["run_ns"] - ran_ns < 10**10
        until(lambda: nobody_looks(mgpu), "the newcomer is gone")
        assert alone.row()["sched"]["run_ns"] == row["run_ns"]


def test_card_of_several_on_which_nothing_is_done() -> None:
    with arbiter.running("v100-16:2", node_config="policy = 'native-burst-share'\n") as mgpu:
        with monitor(mgpu, MGPU_GPUS="2", MGPU_MEMORY_MIB=str(2 * MEMORY_MIB)) as one:
            # On the other card it has a channel, which had something to do once.
            one.look("copy")
            one.look("start")
            until(
                lambda: busy(one.look()["gpu"]) and ran_s(mgpu) > 1 and one.seen["others"] == [0],
                "its work is seen on one card",
            )


def test_containers_see_their_own_utilization_only() -> None:
    with (
        arbiter.running("v100-16", node_config="policy = 'native-burst-share'\n") as mgpu,
        ExitStack() as stack,
    ):
        one, other = (stack.enter_context(monitor(mgpu)) for _ in range(2))
        assert (one.look()["gpu"], other.look()["gpu"]) == (0, 0)
        one.look("start")

        def seen() -> bool:
            assert other.look()["gpu"] == 0
            assert other.seen["processes"] == []
            return busy(one.look()["gpu"])

        until(seen, "the one that works sees it", poll_s=0.1)
        other.look("start")
        # Now each has half of the card, and neither sees the other's half.
        for each in (one, other):
            each.comes_to_see(lambda gpu: abs(gpu - 50) <= NOISE, "half of the card")
            assert {pid for pid, _ in each.seen["processes"]} == set(each.seen["work"])
        one.look("stop")
        one.comes_to_see(idle, "the first has ended")
        other.comes_to_see(busy, "the second has the card")


def test_used_up_fixed_share_shows_100_percent() -> None:
    with arbiter.running("v100-16", node_config="policy = 'fixed-share'\n") as mgpu, ExitStack() as stack:
        small = stack.enter_context(monitor(mgpu, MGPU_CORE="30"))
        large = stack.enter_context(monitor(mgpu, MGPU_CORE="60"))
        small.look("start")
        # Its first turn is a burst of what it had saved up.
        until(lambda: busy(small.look()["gpu"]) and ran_s(mgpu) > 1, "its 30 percent are used up")
        assert large.look()["gpu"] == 0
        [card] = [row for row in mgpu.listing()["cards"] if row["containers"]]
        assert card["policy"] == "fixed-share"


def test_processes_of_a_container_share_one_sample() -> None:
    with (
        arbiter.running("v100-16", node_config="policy = 'native-burst-share'\n") as mgpu,
        monitor(mgpu) as one,
    ):
        one.look("start")
        one.look("start")
        until(
            lambda: len(mgpu.containers()[0]["processes"]) == 2,
            "both hold something of the card",
        )
        one.comes_to_see(
            lambda gpu: busy(gpu) and one.seen["processes"] == [], "their use is the container's"
        )


def test_utilization_is_unsupported_without_a_scheduler() -> None:
    script = "import pynvml; pynvml.nvmlInit(); card = pynvml.nvmlDeviceGetHandleByIndex(0)\n"
    script += (
        "try: print(pynvml.nvmlDeviceGetUtilizationRates(card))\nexcept pynvml.NVMLError as e: print(e)\n"
    )
    with (
        arbiter.running("v100-16", node_config="schedule = false\n") as mgpu,
        bundle("python3", "-c", script, env={"MGPU_MEMORY_MIB": "1024"}) as made,
    ):
        assert made.run(mgpu.runtime).out == "Not Supported\n"
