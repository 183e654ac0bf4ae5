"""Two cards of one container are peers, those of two containers are not; what is mapped so is charged on the
card that it lies on, and its tables on the card that maps it. What RM says of them and makes of them, a
container has among its own cards.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support import rm_numbers as nv
from tests.support.arbiter import Arbiter
from tests.support.lasting import shared_mgpu
from tests.support.programs import Programs
from tests.support.started import Foreground
from tests.support.waiting import until

MIB = 1 << 20
MAPPED = 600 * MIB


two = shared_mgpu("a10:2", sim_options=["driver-version=580.142"])


# Each is linked with each other.
three = shared_mgpu("h100:3", sim_options=["driver-version=580.142"])


@contextmanager
def peers(mgpu: Arbiter, built: Programs, **env: str) -> Iterator[Foreground]:
    uuids = [card["uuid"].removeprefix("GPU-").replace("-", "") for card in mgpu.listing()["cards"]]
    with built.bundle("peers", *uuids, env=env) as made, made.running(mgpu.runtime) as running:
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
        assert step(running) == f"again {nv.NV_ERR_NO_MEMORY:#x}"
        assert two.used_bytes() == [here, there]
        assert step(running) == "after 0"
        assert two.used_bytes() == before
    until(lambda: two.used_bytes() == [0, 0], "nothing is left of it")


@pytest.mark.parametrize("others", [{}, {"MGPU_MEMORY_MIB": "2048"}], ids=["whole", "share"])
def test_cards_of_two_containers_are_no_peers(two: Arbiter, built: Programs, others: dict[str, str]) -> None:
    """The first has a whole card, and the other card is another's or shared."""
    refused = f"enabled {nv.NV_ERR_INVALID_DEVICE:#x} mapped {nv.NV_ERR_INVALID_DEVICE:#x}"
    with (
        peers(two, built, MGPU_GPUS="1") as one,
        peers(two, built, MGPU_GPUS="1", **others) as other,
    ):
        assert [step(running) for running in (one, other)] == [refused, refused]
        assert [step(running) for running in (one, other)] == ["again 0"] * 2
    until(lambda: two.used_bytes() == [0, 0], "nothing is left of them")


def test_whole_cards_are_peers_too(two: Arbiter, built: Programs) -> None:
    with peers(two, built, MGPU_GPUS="2") as running:
        assert step(running) == "enabled 0 mapped 0"
    until(lambda: two.used_bytes() == [0, 0], "nothing is left of it")


# ctrl0000system.h: writes, reads, over NVLink and atomic there; over the bus by mailboxes.
OVER_LINKS, OVER_BUS = 0x1B, 0x47


@contextmanager
def pairs(mgpu: Arbiter, built: Programs, **env: str) -> Iterator[Foreground]:
    with built.bundle("pairs", env=env) as made, made.running(mgpu.runtime) as running:
        assert running.line() == "ready"
        yield running


def objects_of_two(running: Foreground) -> None:
    assert step(running) == "made 0 numbered 0 unlike 0"
    strange = [nv.NV_ERR_INVALID_ARGUMENT] * 3 + [nv.NV_ERR_INVALID_OBJECT_PARENT]
    assert step(running) == "strange " + " ".join(f"{status:#x}" for status in strange)
    assert step(running) == "again 0 0"


@pytest.mark.parametrize("env", [{"MGPU_MEMORY_MIB": "2048"}, {}], ids=["shares", "whole"])
def test_two_cards_of_three_are_told_of_each_other_alone(
    three: Arbiter, built: Programs, env: dict[str, str]
) -> None:
    with pairs(three, built, MGPU_GPUS="2", **env) as running:
        assert step(running) == f"reach {OVER_LINKS:#x} 0, others 0, links 1 hidden 1 listed 1"
        before = three.used_bytes()
        objects_of_two(running)
        assert three.used_bytes() == before
        # Without nvidia-uvm: as with it, charged where it lies, and its tables on the card that maps it.
        assert step(running) == "mapped 0"
        [tables, mapped] = sorted(now - was for now, was in zip(three.used_bytes(), before, strict=True))[1:]
        assert 0 < tables < MIB
        assert mapped == 64 * MIB
    until(lambda: three.used_bytes() == [0, 0, 0], "nothing is left of it")


def test_one_card_has_no_peers_and_no_links(three: Arbiter, built: Programs) -> None:
    with pairs(three, built, MGPU_GPUS="1") as running:
        assert step(running) == "reach 0 0, others 0, links 0 hidden 0 listed 0"
        assert (
            step(running)
            == f"made {nv.NV_ERR_INVALID_CLASS:#x} numbered {nv.NV_ERR_INVALID_CLASS:#x} unlike 0"
        )


def test_cards_without_links_are_peers_over_the_bus(two: Arbiter, built: Programs) -> None:
    with pairs(two, built, MGPU_GPUS="2", MGPU_MEMORY_MIB="2048") as running:
        assert step(running) == f"reach {OVER_BUS:#x} 0, others 0, links 0 hidden 0 listed 1"
        objects_of_two(running)
