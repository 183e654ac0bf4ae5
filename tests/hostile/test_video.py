"""Video engines with a share: their work is seen and suspended as any other, and their memory counts."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.hostile.on_engine import VIDEO, done_ns, run_ns
from tests.support import arbiter
from tests.support.arbiter import Arbiter
from tests.support.programs import Programs
from tests.support.started import Foreground
from tests.support.waiting import until

SHARE = {"MGPU_MEMORY_MIB": "1024", "NVIDIA_DRIVER_CAPABILITIES": "video,compute"}
MS = 1_000_000


@contextmanager
def decodes(mgpu: Arbiter, built: Programs, *args: str, **env: str) -> Iterator[Foreground]:
    with built.bundle("video", *args, env={**SHARE, **env}) as made, made.running(mgpu.runtime) as running:
        assert running.line() == "channel 0 decoder 0"
        yield running


@pytest.mark.parametrize(("cards", "kernels"), [("h200:1", "20"), ("t4:1", "0")], ids=["status", "samples"])
def test_online_decoder_keeps_an_offline_one_off(
    private_host: None, built: Programs, cards: str, kernels: str
) -> None:
    """By what its engine executes: a piece takes ten times as long as online is held after it was submitted.
    Kernels tell by which numbers the engines name groups; without them RM's samples are all there is.
    """
    with (
        arbiter.running(cards) as mgpu,
        decodes(mgpu, built, "2", "1000", kernels, MGPU_QOS="offline") as offline,
        decodes(mgpu, built, "1", "3000", "0") as online,
    ):
        offline.tell()
        until(lambda: mgpu.on_video()[1] > 0, "offline decodes")
        online.tell()
        until(lambda: any(ns > 0 for ns in run_ns(mgpu, VIDEO, are_open=False).values()), "offline is off")
        before, busy = run_ns(mgpu, VIDEO, are_open=False), mgpu.on_video()[1]
        until(lambda: mgpu.on_video()[1] > busy + 500 * MS, "online decodes on")
        assert run_ns(mgpu, VIDEO, are_open=False) == before
        assert online.line() == "done"
        assert offline.line() == "done"
        until(lambda: done_ns(mgpu, VIDEO) == [2000 * MS, 3000 * MS], "both are whole")


def test_decoder_that_mgpud_died_under_ends_with_its_charge(private_host: None, built: Programs) -> None:
    with arbiter.running("h200:1") as mgpu:
        with decodes(mgpu, built) as running:
            assert mgpu.used_bytes() == [card.used_bytes for card in mgpu.account().cards] != [0]
            mgpu.kill("mgpud")
            running.tell()
            assert running.line() == "done"
        until(lambda: mgpu.on_video()[0] == 0, "its channel is gone")
        until(lambda: mgpu.used_bytes() == [0], "so is its charge")
