"""What programs ask of the simulated driver besides memory and work."""

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
KIB = 1 << 10
INVALID_VALUE, UNSUPPORTED_LIMIT, FILE_NOT_FOUND, INVALID_HANDLE = 1, 215, 301, 400
NOT_FOUND, NOT_SUPPORTED = 500, 801

Case = Callable[[str], Any]


@pytest.fixture
def case(run: Run) -> Case:
    return lambda name: json.loads(run([sys.executable, str(HERE / "interface_cases.py"), name]))


def test_context_keeps_what_it_is_told(case: Case) -> None:
    assert case("context_settings") == {
        "limits": [4 * KIB, KIB],
        "configs": [2, 1],
        "flags": 4,
        "other_id": True,
        "device": 0,
        "refused": [UNSUPPORTED_LIMIT, INVALID_VALUE, INVALID_VALUE],
    }


def test_absent_features_are_reported(case: Case) -> None:
    assert case("absent") == {
        "asked": [NOT_FOUND, NOT_SUPPORTED, NOT_SUPPORTED, NOT_FOUND, 0],
        "affinity": 0,
        "capturing": [0, 0],
        "modes": [0, 2],
        "text": "peer access is not supported between these two devices",
        "profiler": [0, 0],
    }


def test_functions_of_modules_and_libraries(case: Case) -> None:
    assert case("functions") == {
        "name": "plain",
        "own": True,
        "attributes": [90 * KIB, -1, 64 * KIB],
        "too_much": INVALID_VALUE,
        "configs": [0, INVALID_VALUE],
        # 2048 threads, 32 blocks and 96 KiB of shared memory fit on a multiprocessor of a V100.
        "blocks": [2, 32, 2, 0],
        "room": 48 * KIB,
        "launched": [0, 0],
        "unloaded": [0, INVALID_HANDLE],
        "no_file": FILE_NOT_FOUND,
    }
