"""numba's driver layer: what a program sees of a card in a container, and that copies carry what they are
given.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import arbiter
from tests.support.foreign import run_foreign

CAP_MIB, CONTEXT_MIB, BLOCK_MIB = 1536, 180, 64
# 240 MiB over a bus of 24 MiB/ms; the groups of a new context get their first turns meanwhile.
COPY_MS, LATE_MS = 10.0, 40.0


@pytest.fixture(scope="module")
def seen(private_host: None) -> Iterator[Any]:
    """What every case of numba_cases.py saw, on the first of two cards."""
    with arbiter.running("a10:2") as mgpu:
        yield run_foreign(mgpu, "numba_cases.py", memory_mib=CAP_MIB)
        assert [card.used_bytes for card in mgpu.account().cards] == [0, 0]


def test_cards_and_their_memory_are_the_grants(seen: Any) -> None:
    assert seen["cards"] == {
        "count": 1,
        "name": "NVIDIA A10",
        "capability": [8, 6],
        "threads": 1024,
        "processors": 72,
        "total_mib": CAP_MIB,
        "free_mib": CAP_MIB - CONTEXT_MIB,
        "uuid": True,
    }


@pytest.mark.parametrize("case", ["copies", "pinned", "managed", "callbacks"])
def test_bytes_arrive_as_they_were_sent(seen: Any, case: str) -> None:
    assert seen[case]
    assert all(seen[case])


def test_managed_memory_is_capped_to_the_byte(seen: Any) -> None:
    assert seen["managed_cap"] == {"refused": True, "exact": True, "back": True}


def test_events_lie_as_far_apart_as_the_copy_between_them_takes(seen: Any) -> None:
    events = seen["events"]
    assert (events["pending"], events["done"]) == (True, True)
    assert COPY_MS <= events["ms"] < COPY_MS + LATE_MS
    assert events["order_ms"] >= 0


def test_processes_share_memory_and_what_is_in_it(seen: Any) -> None:
    assert seen["ipc"] == [True, 0, True, True]


def test_out_of_memory_is_an_error_and_not_the_end(seen: Any) -> None:
    memory = seen["out_of_memory"]
    assert (memory["refused"], memory["after"]) == (True, True)
    assert memory["left_mib"] == memory["before_mib"] - memory["held"] * BLOCK_MIB < BLOCK_MIB


def test_numba_notices_missing_bytes(private_host: None) -> None:
    """The seeded mistake: a card whose memory holds nothing. Copies take their time, and only what is in them
    tells.
    """
    with arbiter.running("a10:1", sim_options=["data=off"]) as mgpu:
        seen = run_foreign(mgpu, "numba_cases.py", "copies", "callbacks", memory_mib=CAP_MIB)
    assert seen["copies"][:4] == [False] * 4
    assert seen["callbacks"] == [False, True]
