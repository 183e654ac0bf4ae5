"""Unmodified programs whose memory gives way to an online container, by mgpud."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support import arbiter
from tests.support.arbiter import Arbiter
from tests.support.foreign import foreign_bundle
from tests.support.lending import LENDS, Running, running, taker, turn
from tests.support.programs import Programs
from tests.support.waiting import until

CONFIG = LENDS + "evict_wait_ms = 2000\n"
CAP_MIB = 1024
OFFLINE = {"mgpu.dev/qos": "offline", "mgpu.dev/memory-reclaimable": "true"}
CARDS = "a10:1"
# More than a context takes there.
CONTEXT_MIB = 300


@contextmanager
def up(config: str) -> Iterator[Arbiter]:
    with arbiter.running(CARDS, node_config=config) as mgpu:
        yield mgpu
        arbiter.until_empty(mgpu)


@contextmanager
def offline(mgpu: Arbiter, script: str, *args: str) -> Iterator[Running]:
    with foreign_bundle(script, *args, memory_mib=CAP_MIB, annotations=OFFLINE) as made:
        with running(mgpu, made) as one:
            yield one


@contextmanager
def online(mgpu: Arbiter, built: Programs) -> Iterator[Running]:
    """Takes all of the card but for what its context has, and gives it back."""
    [card] = mgpu.listing()["cards"]
    with taker(mgpu, built, card["memory_mib"] - CONTEXT_MIB, card["memory_mib"]) as made:
        yield made


def test_numba_is_evicted_and_goes_on_with_its_data(private_host: None, built: Programs) -> None:
    with up(CONFIG) as mgpu, offline(mgpu, "evicted_numba.py") as numba:
        before = json.loads(numba.program.line())
        with online(mgpu, built) as other:
            for _ in range(3):
                turn(other)
                numba.until("evicted")
                # It is asked while it is away, and answers when it is back.
                numba.program.tell()
                turn(other)
                assert json.loads(numba.program.line()) == before
                numba.until("running")
        assert numba.program.end() == 0


def test_tinygrad_keeps_its_memory_and_why_is_said(private_host: None, built: Programs) -> None:
    with up(CONFIG) as mgpu, offline(mgpu, "tinygrad_cases.py", "work") as tinygrad:
        tinygrad.program.line()
        with online(mgpu, built) as other:
            other.program.tell()
            assert other.program.line().split()[:2] == ["took", "2"], "the driver's own answer"
            until(lambda: tinygrad.reclaim == "running", "")
        said = mgpu.mgpu("describe", tinygrad.bundle.container)
        assert "Not moved:    CUDA_ERROR_NOT_INITIALIZED" in said
        log = (mgpu.root / "log" / "mgpud.log").read_text()
        assert log.count(f"event=not-evicted container={tinygrad.bundle.container}") == 1
        tinygrad.program.tell("1")
        assert json.loads(tinygrad.program.line()) == {"same": True}
        assert tinygrad.program.end() == 0


def test_where_the_node_says_so_what_cannot_be_evicted_is_ended(private_host: None, built: Programs) -> None:
    with (
        up(CONFIG + 'unevictable = "end"\n') as mgpu,
        offline(mgpu, "tinygrad_cases.py", "work") as tinygrad,
    ):
        tinygrad.program.line()
        with online(mgpu, built) as other:
            turn(other)
            until(lambda: len(mgpu.containers()) == 1, "tinygrad has ended")
        log = (mgpu.root / "log" / "mgpud.log").read_text()
        assert f"event=killed-unevictable container={tinygrad.bundle.container}" in log
