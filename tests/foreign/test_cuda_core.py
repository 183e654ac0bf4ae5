"""cuda.core and cuda.bindings: the rest of the driver's interface, as those who maintain them use it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import arbiter
from tests.support.foreign import foreign_bundle, run_foreign
from tests.support.waiting import until

CAP_MIB = 1024
MIB = 1 << 20
# A kernel's time, and what may come between two events besides: turns of a new context's groups.
SPIN_MS, LATE_MS = 5.0, 40.0
SIZE = 3 * MIB
HOST, DEVICE, NO_DEVICE = 1, 2, -2


@pytest.fixture(scope="module")
def seen(private_host: None) -> Iterator[Any]:
    """What every case of cuda_core_cases.py saw."""
    with arbiter.running("a10:1") as mgpu:
        yield run_foreign(mgpu, "cuda_core_cases.py", memory_mib=CAP_MIB)
        assert [card.used_bytes for card in mgpu.account().cards] == [0]


def test_device_answers_everything_that_the_bindings_can_ask(seen: Any) -> None:
    assert seen["device"] == {
        "name": "NVIDIA A10",
        "capability": [8, 6],
        "processors": 72,
        "total_mib": CAP_MIB,
        "refused": [],
        "misnamed": [],
    }


def test_nvml_tells_of_the_same_card(seen: Any) -> None:
    assert seen["tools"] == {"count": 1, "name": "NVIDIA A10", "same": True, "total_mib": CAP_MIB}


def test_pools_serve_in_the_order_of_streams(seen: Any) -> None:
    pools = seen["pools"]
    assert 0 < pools.pop("ms") < LATE_MS
    assert pools == {
        "equal": True,
        "used": 2 * SIZE,
        "left": [SIZE, SIZE],
        "high": 2 * SIZE,
        "refused": "CUDA_ERROR_OUT_OF_MEMORY",
        "again": SIZE,
        "peers": [],
    }


def test_pools_keep_what_their_threshold_allows(seen: Any) -> None:
    assert seen["thresholds"] == [8, True, 0]


def test_virtual_addresses_show_what_is_mapped_there(seen: Any) -> None:
    no_access = "CUDA_ERROR_INVALID_VALUE"
    assert seen["virtual_addresses"] == [no_access, True, no_access, True, True]


def test_kernels_of_libraries_take_their_time(seen: Any) -> None:
    kernels = seen["kernels"]
    assert SPIN_MS <= kernels.pop("ms") < SPIN_MS + LATE_MS
    # 1536 threads fit on a multiprocessor of that capability: two blocks of 768, of 1024 one.
    assert kernels == {"threads": 1024, "blocks": 1, "best": [2 * 72, 768]}


def test_boxes_of_bytes_arrive(seen: Any) -> None:
    assert seen["boxes"] == [True] * 5


def test_pointers_say_what_they_point_to(seen: Any) -> None:
    assert seen["pointers"] == {
        "found": [[DEVICE, 0, MIB, 0], [DEVICE, 1, MIB, 0], [HOST, 0, MIB, 0], [0, 0, 0, NO_DEVICE]],
        "unknown": "CUDA_ERROR_INVALID_VALUE",
        "registered": HOST,
    }


def test_host_functions_run_where_their_stream_is(seen: Any) -> None:
    assert seen["host_functions"] == {"pending": "CUDA_ERROR_NOT_READY", "seen": [2], "after": [3]}


def test_process_checkpoints_itself(seen: Any) -> None:
    assert seen["checkpoints"] == {
        "states": ["running", "locked", "checkpointed", "locked", "running"],
        "illegal": "CUDA_ERROR_ILLEGAL_STATE",
        "thread": True,
        "same": True,
    }
    assert seen["exported"] == "CUDA_ERROR_NOT_SUPPORTED"


def test_pools_of_a_card_are_given_to_its_peer(private_host: None) -> None:
    with arbiter.running("a10:2") as mgpu:
        with foreign_bundle("peers_cuda_core.py", memory_mib=2 * CAP_MIB, env={"MGPU_GPUS": "2"}) as made:
            done = made.run(mgpu.runtime)
        assert done.status == 0, done
        assert json.loads(done.out.splitlines()[-1]) == {
            "can": [True, True],
            "peers": [[], [0], []],
            "same": True,
        }
        until(lambda: mgpu.in_use() == ([0, 0], [0, 0]), "nothing is left of it")
