"""Carried containers where there is no room for them at first, or a driver that does not take them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import arbiter, criu
from tests.support.arbiter import Arbiter
from tests.support.carried import CAP_MIB, numba
from tests.support.lending import CARD_MIB, FILL_MIB, OFFLINE, holder, started, taker, turn
from tests.support.programs import Programs
from tests.support.scrape import scrape
from tests.support.waiting import until

LENDS = "offline_overcommit = true\nrestore_hold_ms = 1000\n"
GIVES_WAY = {"mgpu.dev/qos": "offline", "mgpu.dev/memory-reclaimable": "true"}


@pytest.fixture(scope="module", autouse=True)
def _criu(private_host: None) -> Iterator[None]:
    with criu.on_path():
        yield


@pytest.fixture(scope="module")
def two(private_host: None) -> Iterator[tuple[Arbiter, Arbiter]]:
    with (
        arbiter.running("v100-16:2", node_config=LENDS) as one,
        arbiter.running("v100-16:2", node_config=LENDS, sim_options=["machine=1"]) as other,
    ):
        yield one, other


@pytest.mark.parametrize("where", ["", "--gpus"])
def test_without_room_it_is_evicted_until_there_is_some(
    two: tuple[Arbiter, Arbiter], built: Programs, tmp_path: Path, where: str
) -> None:
    one, other = two
    with numba(tmp_path / "images", annotations=GIVES_WAY) as carried, taker(other, built) as online:
        name = carried.made.container
        before = carried.start(one)
        held = one.used_bytes()[0]
        carried.leave(one)
        done = carried.restore(other, "--detach")
        assert not done.status, done
        # Room that it has been given by now, it gives back.
        turn(online)
        until(lambda: carried.reclaim(other) == "evicted", "it is evicted")
        other.kill("mgpud")
        until(lambda: carried.reclaim(other) == "evicted", "the next one knows it")
        assert "bound, evicted" in other.mgpu("ps")
        assert f"evicted, {-(-held >> 20)} MiB" in other.mgpu("describe", name)
        assert f"{-(-held >> 20)} evicted" in other.mgpu("top", "--once")
        assert scrape(other.root).of("memory_evicted_bytes", name) == held
        refused = other.try_mgpu("resume", name)
        assert "MiB on GPU 0, where" in refused.err, str(refused)
        if where:
            there = other.listing()["cards"][1]["uuid"]
            assert "bound" in other.mgpu("resume", name, where, there)
            assert other.used_bytes()[1] == held
        else:
            turn(online)
        assert carried.look() == before
        if where:
            turn(online)
    arbiter.until_empty(other)


def test_reclaimable_memory_is_evicted_for_an_online_one(
    two: tuple[Arbiter, Arbiter], built: Programs, tmp_path: Path
) -> None:
    one, other = two
    fills = OFFLINE | {"mgpu.dev/memory-mib": str(CARD_MIB)}
    with (
        numba(tmp_path / "images") as carried,
        started(other, built, fills, *holder()) as offline,
    ):
        before = carried.start(one)
        carried.leave(one)
        assert offline.program.line() == "held 0"
        assert other.used_bytes()[0] >= FILL_MIB << 20
        done = carried.restore(other, "--detach")
        assert not done.status, done
        assert carried.look() == before
        assert offline.reclaim == "evicted"
    arbiter.until_empty(other)


def test_older_driver_restores_it_onto_its_own_gpu_only(
    two: tuple[Arbiter, Arbiter], tmp_path: Path
) -> None:
    one, _ = two
    older = "driver-version=570.86.16"
    with (
        arbiter.running("v100-16:1", sim_options=[older, "machine=1"]) as another,
        arbiter.running("v100-16:1", sim_options=[older]) as same,
        numba(tmp_path / "images") as carried,
    ):
        before = carried.start(one)
        carried.leave(one)
        done = carried.restore(another, "--detach")
        assert done.status
        assert done.err == (
            "mgpu: driver 570.86.16 restores a process onto its own GPUs only, and these are others; "
            "restore it where driver 580 or newer is, or on the machine that it comes from\n"
        )
        assert another.containers() == []
        done = carried.restore(same, "--detach")
        assert not done.status, done
        assert carried.look() == before
        assert same.mgpu("evict", carried.made.container)
        assert same.used_bytes() == [0]
        assert f"{CAP_MIB}" in same.mgpu("resume", carried.made.container)
        assert carried.look() == before
