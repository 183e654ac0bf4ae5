"""Cards of one container are peers to libcuda: what it says of them is so, and memory of one that the other
reaches is charged once, where it lies. Cards of two containers are strangers to it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.arbiter import Arbiter
from tests.support.lasting import shared_mgpu
from tests.support.programs import Programs
from tests.support.started import Foreground
from tests.support.waiting import until

MIB = 1 << 20
BYTES = 64 * MIB
INVALID_DEVICE, PEERS_UNSUPPORTED = 101, 217
SHARES = {"MGPU_GPUS": "2", "MGPU_MEMORY_MIB": "4096"}
WHOLE = {"MGPU_GPUS": "2"}

# Over NVLink, and over the bus.
linked = shared_mgpu("h100:2", sim_options=["driver-version=580.142"])
plain = shared_mgpu("a10:2", sim_options=["driver-version=580.142"])
# On which NV50_P2P is not known.
newer = shared_mgpu("a10:2", sim_options=["driver-version=610.43.03"])


@contextmanager
def program(mgpu: Arbiter, built: Programs, env: dict[str, str]) -> Iterator[Foreground]:
    with built.bundle("two_cards", env=env) as made, made.running(mgpu.runtime) as running:
        assert running.line() == "ready"
        yield running


def step(running: Foreground) -> str:
    running.tell()
    return running.line()


def grown(mgpu: Arbiter, before: list[int]) -> list[int]:
    return [(now - was) // BYTES for now, was in zip(mgpu.used_bytes(), before, strict=True)]


@pytest.mark.parametrize("cards", ["linked", "plain"])
@pytest.mark.parametrize("env", [SHARES, WHOLE], ids=["shares", "whole"])
def test_first_card_reaches_memory_of_the_last(
    request: pytest.FixtureRequest, built: Programs, cards: str, env: dict[str, str]
) -> None:
    mgpu = request.getfixturevalue(cards)
    with program(mgpu, built, env) as running:
        assert step(running) == "cards 2, can 1 1, enabled 0 0"
        before = mgpu.used_bytes()
        assert step(running) == "same 1"
        assert grown(mgpu, before) == [1, 1]
        assert step(running) == "opened 0 same 1"
        until(lambda: grown(mgpu, before) == [1, 1], "nothing is left of the other process")
        assert step(running) == "given 0 same 1"
        assert sorted(grown(mgpu, before)) == [1, 2]
        assert step(running) == "disabled 0 0"
        # But for what the copy engines' groups take.
        assert grown(mgpu, before) == [0, 0]
        running.tell()
        assert running.end() == 0
    until(lambda: mgpu.in_use() == ([0, 0], [0, 0]), "nothing is left of it")


def test_cards_without_peers_copy_through_the_host(newer: Arbiter, built: Programs) -> None:
    with program(newer, built, SHARES) as running:
        assert step(running) == f"cards 2, can 0 0, enabled {PEERS_UNSUPPORTED} {PEERS_UNSUPPORTED}"
        assert step(running) == "same 1"
        assert step(running) == f"opened {PEERS_UNSUPPORTED} same 0"
        assert step(running) == f"given {INVALID_DEVICE} same 0"
    until(lambda: newer.in_use() == ([0, 0], [0, 0]), "nothing is left of it")


@pytest.mark.parametrize("env", [{"MGPU_GPUS": "1"}, {"MGPU_MEMORY_MIB": "2048"}], ids=["whole", "share"])
def test_cards_of_two_containers_are_strangers(
    linked: Arbiter, built: Programs, env: dict[str, str]
) -> None:
    """Neither has a second card to ask for: both contexts are on the same one."""
    alone = f"cards 1, can -1 -1, enabled {PEERS_UNSUPPORTED} {PEERS_UNSUPPORTED}"
    with (
        program(linked, built, {"MGPU_GPUS": "1"}) as one,
        program(linked, built, env) as other,
    ):
        assert [step(running) for running in (one, other)] == [alone, alone]
    until(lambda: linked.in_use() == ([0, 0], [0, 0]), "nothing is left of them")
