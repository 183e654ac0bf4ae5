"""Memory of every kind and the copies between them, on a simulated card."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.sim.conftest import Run

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a mount namespace with device nodes")
HERE = Path(__file__).parent
INVALID_VALUE, OUT_OF_MEMORY, INVALID_DEVICE, NOT_READY = 1, 2, 101, 600
INVALID_CONTEXT, PEER_UNSUPPORTED, PEER_ALREADY_ENABLED, PEER_NOT_ENABLED = 201, 217, 704, 705
ALREADY_REGISTERED, NOT_REGISTERED = 712, 713
PORTABLE, DEVICEMAP = 1, 2

Case = Callable[[str], Any]


@pytest.fixture
def case(run: Run) -> Case:
    return lambda name: json.loads(run([sys.executable, str(HERE / "memory_cases.py"), name]))


def test_copies_read_and_write_when_their_stream_has_come_to_them(case: Case) -> None:
    early, late, pending = case("read_on_time")
    assert pending == NOT_READY, "neither copy waits"
    assert early == [9], "nothing is written before"
    assert late == [1, 2], "pageable memory was read at the call, pinned memory by the copy"


def test_bytes_are_visible_once_work_is_done(case: Case) -> None:
    assert case("whoever_looks") == [1, 2, 3, 4, 5, 6]


def test_copies_without_a_wait_keep_their_order(case: Case) -> None:
    assert case("far_ahead") is True


def test_copies_keep_the_order_between_streams(case: Case) -> None:
    assert case("across_streams") is True


@pytest.mark.parametrize(
    ("of", "can", "enabled", "disabled"),
    [
        # Over NVLink, which is atomic; no peer is nearer than another.
        ("cards", [1, 0, 1, 1, 1], [0, PEER_ALREADY_ENABLED], [0, PEER_NOT_ENABLED]),
        ("unlike_cards", [0, 0, 0, 0, 0], [PEER_UNSUPPORTED] * 2, [PEER_NOT_ENABLED] * 2),
    ],
)
def test_cards_are_what_is_said_of_them_and_copy_either_way(
    case: Case, of: str, can: list[int], enabled: list[int], disabled: list[int]
) -> None:
    assert case(of) == {
        "moved": True,
        "can": can,
        "enabled": enabled,
        "disabled": disabled,
        "refused": [INVALID_CONTEXT, INVALID_VALUE, INVALID_DEVICE],
    }


def test_host_memory(case: Case) -> None:
    assert case("host_memory") == {
        "flags": PORTABLE | DEVICEMAP,
        "same": True,
        "registered": [0, ALREADY_REGISTERED],
        "unregistered": [0, NOT_REGISTERED],
        "freed": [0, INVALID_VALUE],
        "not_the_cards": INVALID_VALUE,
        "too_much": OUT_OF_MEMORY,
    }


def test_managed_memory(case: Case) -> None:
    seen = case("managed_memory")
    assert (seen["back"], seen["read_mostly"]) == (3, 0)
    assert seen["mapped"] == [True, False, False]
    assert seen["results"] == [
        *(0, 0, INVALID_DEVICE, 0, INVALID_VALUE),
        *(0, 0, INVALID_VALUE, INVALID_VALUE),
        *(0, 0, INVALID_VALUE),
    ]


def test_pools_wait_for_what_streams_free(case: Case) -> None:
    assert case("pool_order") == {
        "too_much": [0, 0, OUT_OF_MEMORY, OUT_OF_MEMORY],
        "not_of_a_pool": INVALID_VALUE,
        "current": True,
        "used": 1 << 20,
        "access": [3, 0],
        "for_others": [0, INVALID_DEVICE],
        "default_destroyed": INVALID_VALUE,
        "destroyed": 0,
        "still_ours": 0,
        "twice": INVALID_VALUE,
        "to_end": 0,
        "again": INVALID_VALUE,
    }


def test_forms_for_a_threads_own_stream(case: Case) -> None:
    seen = case("own_stream_forms")
    assert set(map(tuple, seen["asynchronous"].values())) == {(0, NOT_READY)}
    assert seen["ids"] == [True, False]
    assert seen["asked"] == [0, 0]
    assert seen["called"]
