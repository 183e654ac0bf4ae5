"""Two cards of one container are peers, those of two containers are not; what is mapped so is charged on the
card that it lies on, and its tables on the card that maps it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support import arbiter
from tests.support.arbiter import Arbiter
from tests.support.bundle import bundle
from tests.support.programs import Programs, inside
from tests.support.rm_numbers import NV_ERR_INVALID_DEVICE, NV_ERR_NO_MEMORY
from tests.support.started import Foreground, foreground
from tests.support.waiting import until

MIB = 1 << 20
MAPPED = 600 * MIB


@pytest.fixture(scope="module")
def two(private_host: None) -> Iterator[Arbiter]:
    with arbiter.running("a10:2", sim_options=["driver-version=580.142"]) as mgpu:
        yield mgpu


@contextmanager
def peers(mgpu: Arbiter, built: Programs, **env: str) -> Iterator[Foreground]:
    uuids = [card["uuid"].removeprefix("GPU-").replace("-", "") for card in mgpu.listing()["cards"]]
    with (
        bundle(inside("peers"), *uuids, env=env, mounts=[built.oci_mount]) as made,
        foreground(made.argv(mgpu.runtime, "run", "--bundle", made.path, made.container)) as running,
    ):
        assert running.line() == "ready"
        yield running


def step(running: Foreground) -> str:
    running.tell()
    return running.line()


def test_memory_of_a_peer_is_charged_where_it_lies(two: Arbiter, built: Programs) -> None:
    with peers(two, built, MGPU_GPUS="2", MGPU_MEMORY_MIB="2048") as running:
        before = two.used_bytes()
        assert step(running) == "enabled 0 mapped 0"
        here, there = two.used_bytes()
        assert 0 < here - before[0] < MIB
        assert there == before[1] >= MAPPED
        # Its name is freed while the peer maps it: it still takes the cap.
        assert step(running) == f"again {NV_ERR_NO_MEMORY:#x}"
        assert two.used_bytes() == [here, there]
        assert step(running) == "after 0"
        assert two.used_bytes() == before
    until(lambda: two.used_bytes() == [0, 0], "nothing is left of it")


def test_cards_of_two_containers_are_no_peers(two: Arbiter, built: Programs) -> None:
    refused = f"enabled {NV_ERR_INVALID_DEVICE:#x} mapped {NV_ERR_INVALID_DEVICE:#x}"
    with (
        peers(two, built, MGPU_GPUS="1") as one,
        peers(two, built, MGPU_GPUS="1") as other,
    ):
        assert [step(running) for running in (one, other)] == [refused, refused]
        assert [step(running) for running in (one, other)] == ["again 0"] * 2
    until(lambda: two.used_bytes() == [0, 0], "nothing is left of them")


def test_whole_cards_are_peers_too(two: Arbiter, built: Programs) -> None:
    with peers(two, built, MGPU_GPUS="2") as running:
        assert step(running) == "enabled 0 mapped 0"
    until(lambda: two.used_bytes() == [0, 0], "nothing is left of it")
