"""When mgpud says that it is alive, and when it ends or refuses by itself."""

import asyncio
import subprocess
from collections.abc import Iterator
from typing import cast

import pytest

from native_sched.daemon.control.health import STUCK_S
from native_sched.daemon.control.heartbeat import BEAT_S, Heartbeat, end_with, with_holder
from native_sched.daemon.control.server import Peer
from native_sched.daemon.links.holder import HolderLink
from oci_specs.refusal import Refusal
from tests.unit.metrics_support import Node, node

MINUTE_NS = 60 * 10**9


class CountingLink:
    def __init__(self) -> None:
        self.beats = 0

    def alive(self) -> None:
        self.beats += 1


class Beating:
    """A node whose time goes by with looks and beats."""

    def __init__(self, world: Node) -> None:
        self.world = world
        self.link = CountingLink()
        self.heartbeat = Heartbeat(world.watchdog, cast(HolderLink, self.link))

    def beats_in(self, seconds: float, calls_per_s: int = 0, *, looks: bool = True) -> int:
        before = self.link.beats
        for second in range(round(seconds)):
            self.world.engine.counts.calls += calls_per_s
            if looks and second % 2:
                self.world.pass_s(2)
            self.heartbeat.beat()
        return self.link.beats - before


@pytest.fixture
def beating() -> Iterator[Beating]:
    with node() as world:
        yield Beating(world)


def test_heartbeat_beats_while_all_loops_turn(beating: Beating) -> None:
    assert beating.beats_in(60) == 60 / BEAT_S


def test_stuck_scheduler_silences_the_heartbeat_until_it_turns(beating: Beating) -> None:
    beating.beats_in(2)
    beating.world.engine.turns_alone = False
    assert STUCK_S - 2 <= beating.beats_in(60) <= STUCK_S + 2
    beating.world.engine.turns_alone = True
    assert beating.beats_in(60) >= 58


def test_waiting_caller_does_not_silence_the_heartbeat(beating: Beating) -> None:
    """Others are answered meanwhile, so nothing is the matter with the mediator."""
    beating.world.engine.serving_ns = MINUTE_NS
    assert beating.beats_in(60, calls_per_s=1) == 60


def test_stuck_mediator_silences_the_heartbeat(beating: Beating) -> None:
    beating.world.engine.serving_ns = MINUTE_NS
    assert beating.beats_in(60) <= STUCK_S + 4


def test_heartbeat_beats_without_calls(beating: Beating) -> None:
    assert beating.beats_in(120) == 120


def test_watchdog_that_does_not_look_is_no_witness(beating: Beating) -> None:
    beating.beats_in(4)
    assert beating.beats_in(60, looks=False) <= STUCK_S


def test_heartbeat_ends_with_a_process() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        with subprocess.Popen(["sleep", "1000"]) as process:
            end_with(loop, process.pid, lambda: ended.set_result(True))
            await asyncio.sleep(0.01)
            assert not ended.done()
            process.kill()
            async with asyncio.timeout(10):
                await ended
            process.wait()
            again = loop.create_future()
            end_with(loop, process.pid, lambda: again.set_result(True))
            assert again.done()

    asyncio.run(story())


def test_admission_is_refused_without_a_holder() -> None:
    connected = False
    admit = with_holder(lambda _message, _peer: {"action": "pass"}, lambda: connected)
    with pytest.raises(Refusal, match="mgpu-holder is not running") as refused:
        admit({}, Peer(1, 0))
    assert refused.value.code == "no-holder"
    assert "\n" not in refused.value.line()
    connected = True
    assert admit({}, Peer(1, 0)) == {"action": "pass"}
