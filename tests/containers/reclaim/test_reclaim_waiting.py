"""An online call that lacks memory which offline holds: it waits, and other calls do not wait for it.

The offline container is frozen, so that it is not evicted.
"""

import os
import signal
import time
from collections.abc import Iterator

import pytest

from runtime_hook import needs
from tests.support import arbiter
from tests.support.arbiter import Arbiter
from tests.support.lasting import shared_mgpu
from tests.support.lending import CARD_MIB, ONLINE, Running, holder, keeper, started
from tests.support.programs import Programs
from tests.support.scrape import scrape
from tests.support.waiting import until

WAIT_S = 15
CONFIG = f"offline_overcommit = true\nevict_wait_ms = {WAIT_S * 1000}\n"


mgpu = shared_mgpu("v100-16:1", node_config=CONFIG)


@pytest.fixture
def lent(mgpu: Arbiter, built: Programs) -> Iterator[Running]:
    with keeper(mgpu, built) as made:
        made.call("pause")
        until(lambda: made.row["paused"], "it is seen to be frozen")
        yield made
    arbiter.until_empty(mgpu)


def end(made: Running) -> None:
    made.call("resume")
    made.call("kill", "KILL")


def until_it_waits(mgpu: Arbiter) -> None:
    until(lambda: mgpu.listing()["cards"][0]["demanded_bytes"] > 0, "a call waits for memory")


def test_waiting_call_is_answered_when_there_is_room(mgpu: Arbiter, built: Programs, lent: Running) -> None:
    with started(mgpu, built, ONLINE, *holder()) as online:
        until_it_waits(mgpu)
        # The stop tears the thread out of the call, and the kernel makes it again afterwards.
        os.kill(online.row["pid"], signal.SIGSTOP)
        until(lambda: not mgpu.listing()["cards"][0]["demanded_bytes"], "the call is seen to be gone")
        os.kill(online.row["pid"], signal.SIGCONT)
        until_it_waits(mgpu)
        mgpu.kill("mgpud")
        until_it_waits(mgpu)
        end(lent)
        assert online.program.line() == "held 0"
        # The next mgpud serves metrics last.
        until(lambda: needs.listens(mgpu.root / "metrics.sock"), "metrics are served")
        assert scrape(mgpu.root).one("mgpu_parked_seconds_count") >= 1
        waited = online.row["parked"]
        assert waited["calls"] >= 1
        assert scrape(mgpu.root).one("mgpu_parked_seconds_sum") == pytest.approx(waited["ns"] / 1e9)
        assert "for memory that gives way" in mgpu.mgpu("describe", online.bundle.container)


def test_waiting_call_gets_the_drivers_answer_in_the_end(
    mgpu: Arbiter, built: Programs, lent: Running
) -> None:
    # Too much beside what is lent, and little enough that a second context is within the cap too.
    with started(mgpu, built, ONLINE, *holder(CARD_MIB - 440)) as online:
        until_it_waits(mgpu)
        begun = time.monotonic()
        # Another process of the container, and another listener, is served meanwhile.
        assert "V100" in online.call("exec", "gpustat", "--no-header")
        assert online.program.line() == "held 2"
    assert time.monotonic() - begun > WAIT_S / 2
