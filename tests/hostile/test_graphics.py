"""Graphics with a share: its work is suspended as any other, and its memory ends at the cap."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.hostile.on_engine import GRAPHICS, done_ns, run_ns
from tests.support import arbiter
from tests.support.arbiter import Arbiter
from tests.support.programs import Programs
from tests.support.rm_numbers import NV_ERR_INVALID_CLASS
from tests.support.started import Foreground
from tests.support.waiting import until

SHARE = {"MGPU_MEMORY_MIB": "1024", "NVIDIA_DRIVER_CAPABILITIES": "graphics,utility"}
MS = 1_000_000


@contextmanager
def draws(mgpu: Arbiter, built: Programs, *args: str, **env: str) -> Iterator[Foreground]:
    with (
        built.bundle("graphics", *args, env={**SHARE, **env}) as made,
        made.running(mgpu.runtime) as running,
    ):
        yield running


def busy(mgpu: Arbiter) -> int:
    return mgpu.account().cards[0].engines[0].busy_ns


def test_online_drawing_keeps_an_offline_one_off(private_host: None, built: Programs) -> None:
    with (
        arbiter.running("h200:1") as mgpu,
        draws(mgpu, built, "20", "100", MGPU_QOS="offline") as offline,
        draws(mgpu, built, "1", "3000") as online,
    ):
        for each in (offline, online):
            assert each.line() == "channel 0 draws 0"
            assert each.line() == "memory 1024 regions 1024"
        offline.tell()
        until(lambda: busy(mgpu) > 0, "offline draws")
        online.tell()
        until(
            lambda: any(ns > 0 for ns in run_ns(mgpu, GRAPHICS, are_open=False).values()), "offline is off"
        )
        before, so_far = run_ns(mgpu, GRAPHICS, are_open=False), busy(mgpu)
        until(lambda: busy(mgpu) > so_far + 500 * MS, "online draws on")
        assert run_ns(mgpu, GRAPHICS, are_open=False) == before
        assert online.line() == "done"
        assert offline.line() == "done"
        until(lambda: done_ns(mgpu, GRAPHICS) == [2000 * MS, 3000 * MS], "both are whole")


@pytest.mark.parametrize("capabilities", ["compute,utility", "video"])
def test_share_without_the_capability_is_refused_in_the_drivers_words(
    private_host: None, built: Programs, capabilities: str
) -> None:
    with (
        arbiter.running("h200:1") as mgpu,
        draws(mgpu, built, NVIDIA_DRIVER_CAPABILITIES=capabilities) as running,
    ):
        assert running.line() == f"channel 0 draws {NV_ERR_INVALID_CLASS:#x}"
