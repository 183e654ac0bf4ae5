"""mgpud, the holder, or both at once are killed while containers start: what has a listener lives and is
served, and what has none is ended; at no instant is there anything between. Where something outlives both,
only a listener that was on its way can be lost.
"""

import os
import random
import signal
import threading
import time
from contextlib import ExitStack, suppress

import pytest

from oci_specs.refusal import Refusal
from tests.chaos import field as fields
from tests.support import arbiter
from tests.support.arbiter import Arbiter
from tests.support.asking import ASKS
from tests.support.bundle import Bundle, bundle
from tests.support.started import Foreground
from tests.support.waiting import readable, until

ENV = {"MGPU_MEMORY_MIB": "256", "MGPU_POLICY": "native-burst-share"}
CONTAINERS = 4
# From when mgpud serves until it has judged all: two looks, and what they take on a busy machine at most.
JUDGED_S = 6.0
JUDGED_MAX_S = 30.0
SECONDS = float(os.environ.get("MGPU_CHAOS_SECONDS") or 40)


class Asked:
    """A container that is started at some instant. old: it has run since before the present round."""

    def __init__(self, stack: ExitStack, mgpu: Arbiter) -> None:
        self.made: Bundle = stack.enter_context(bundle(*ASKS, env=ENV))
        self.running: Foreground = stack.enter_context(self.made.running(mgpu.runtime))
        self.up = self.old = False

    def has_ended(self) -> bool:
        return self.running.process.poll() is not None

    def is_served(self) -> bool:
        assert self.running.process.stdout is not None
        if not self.up:
            assert readable(self.running.process.stdout, 30), "it does not come up"
            self.up = self.running.line() == "up"
        # It may be ended at this moment.
        with suppress(BrokenPipeError):
            self.running.tell("x")
        return self.running.process.stdout.readline() == "served\n"


def serves(mgpu: Arbiter) -> bool:
    with suppress(Refusal):
        return bool(mgpu.ask("health")["ok"])
    return False


def kill(mgpu: Arbiter, victims: tuple[str, ...]) -> None:
    pids = [pid for name in victims for pid in mgpu.pids_of(name)]
    # Neither lives long enough to give the other anything.
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)


@pytest.mark.timeout(int(SECONDS * 3) + 180)
@pytest.mark.parametrize("stored", [True, False], ids=["stored", "not-stored"])
def test_container_is_served_or_ended(private_host: None, stored: bool) -> None:
    chosen = random.Random(fields.seed())
    counts = {"served": 0, "ended": 0, "not started": 0}
    with arbiter.running("v100-16:1", stored=stored) as up, ExitStack() as stack:
        asked: list[Asked] = []
        end_s = time.monotonic() + SECONDS / 2
        rounds = 0
        # In the first round a busy machine may have none up as both die; in the fourth there are some.
        while time.monotonic() < end_s or rounds < 4:
            victims = [("holder", "mgpud"), ("mgpud",), ("holder",)][rounds % 3]
            rounds += 1
            for each in asked:
                each.old = True
            beginning = threading.Timer(chosen.random() * 0.6, kill, (up, victims))
            beginning.start()
            while len(asked) < CONTAINERS:
                asked.append(Asked(stack, up))
                time.sleep(chosen.random() * 0.2)
            beginning.join()
            until(lambda: serves(up), "the next mgpud serves", timeout_s=60)
            time.sleep(JUDGED_S)
            for each in list(asked):
                if not each.has_ended() and each.is_served():
                    counts["served"] += 1
                    continue
                until(each.has_ended, "who is not served is ended", timeout_s=JUDGED_MAX_S)
                # What has come is kept by one of the two, or stored; only what a runtime was sending may go.
                assert not each.old or (len(victims) == 2 and not stored), (
                    f"{each.made.container} was ended with {victims}"
                )
                known = f"event=lost-listener container={each.made.container} "
                ended = known in (up.root / "log" / "mgpud.log").read_text()
                assert ended or not each.up, "it ended, and mgpud does not say why"
                counts["ended" if ended else "not started"] += 1
                asked.remove(each)
        print(rounds, "rounds;", *(f"{name} {count}" for name, count in counts.items()), sep=" ")
    assert counts["served"]
    assert counts["ended"] or stored
