"""What is pending when a stream, a context, a process or a card ends."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sim.cards import running
from tests.sim.conftest import Run, library_environment

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a mount namespace with device nodes")
PROGRAM = Path(__file__).with_name("ending_cases.py")
EXACT_MS = 0.1
OUT_OF_MEMORY, DESTROYED, LAUNCH_FAILED = 2, 709, 719

Case = Callable[..., Any]


@pytest.fixture
def case(run: Run) -> Case:
    return lambda name: json.loads(run([sys.executable, str(PROGRAM), name]))


def test_ending_with_work_pending(case: Case) -> None:
    seen = case("destroy_pending")
    assert seen["kept"] == pytest.approx(20.0, abs=EXACT_MS)
    assert seen["waiter"] == [DESTROYED]
    # The kernel that does not go on would take 100 s.
    assert seen["ended"] < 20
    assert seen["noticed"] < 40


def test_ending_context_does_not_delay_others(case: Case) -> None:
    assert case("foreign_event_ends") < 50, "the kernel that was to be waited for would take 100 s"


def test_work_leaves_the_memory_account_alone(case: Case) -> None:
    assert case("room") == [200 << 20, OUT_OF_MEMORY]


def test_fork(case: Case) -> None:
    status, elapsed = case("fork")
    assert status == 0
    assert 50.0 <= elapsed < 200.0


@pytest.mark.parametrize(("name", "expected"), [("lost", 6), ("lost_while_full", 1)])
def test_lost_card_is_an_error_for_ever_and_no_hang(
    tmp_path: Path, supervisor: str, name: str, expected: int
) -> None:
    with running(tmp_path, "v100-16", rm_call_us=0) as card:
        command = [supervisor, os.fspath(card.card_socket), "1"]
        with subprocess.Popen(
            [*command, sys.executable, str(PROGRAM), name],
            env=library_environment(),
            stdout=subprocess.PIPE,
            text=True,
        ) as program:
            assert program.stdout is not None
            assert program.stdout.readline() == "waiting\n"
            card.process.kill()
            assert json.loads(program.communicate(timeout=60)[0]) == [LAUNCH_FAILED] * expected
            assert program.returncode == 0
