"""Unmodified programs whose memory is moved off the card and back, from outside of their containers."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support import arbiter
from tests.support.arbiter import Arbiter
from tests.support.checkpoint import Checkpoint
from tests.support.colocation import pid_of
from tests.support.foreign import foreign_bundle
from tests.support.lasting import shared_mgpu
from tests.support.started import Foreground
from tests.support.steady import killed
from tests.support.waiting import until

CAP_MIB = 1024


mgpu = shared_mgpu("a10:1")


@contextmanager
def container(mgpu: Arbiter, script: str, *args: str) -> Iterator[tuple[Foreground, int]]:
    """A program in a container, and its pid."""
    with foreign_bundle(script, *args, memory_mib=CAP_MIB) as made, made.running(mgpu.runtime) as running:
        yield running, pid_of(mgpu, made.container)
    arbiter.until_empty(mgpu)


def bring_back(checkpoint: Checkpoint, pid: int) -> None:
    assert checkpoint(f"restore {pid}") == "locked"
    assert checkpoint(f"unlock {pid}") == "running"


def test_numba_goes_on_with_its_data(mgpu: Arbiter, checkpoint: Checkpoint) -> None:
    with container(mgpu, "evicted_numba.py") as (numba, pid):
        before = json.loads(numba.line())
        full = mgpu.in_use()
        for _ in range(3):
            checkpoint.move_away(pid)
            assert mgpu.in_use() == ([0], [0])
            numba.tell()
            bring_back(checkpoint, pid)
            assert json.loads(numba.line()) == before
            until(lambda: mgpu.in_use() == full, "it has as much as before")
        assert numba.end() == 0


def test_another_mgpud_takes_a_process_back_or_its_end(mgpu: Arbiter, checkpoint: Checkpoint) -> None:
    with container(mgpu, "evicted_numba.py") as (numba, pid):
        before = json.loads(numba.line())
        checkpoint.move_away(pid)
        killed(mgpu, "mgpud")
        bring_back(checkpoint, pid)
        numba.tell()
        assert json.loads(numba.line()) == before
        checkpoint.move_away(pid)
        os.kill(pid, signal.SIGKILL)
        numba.process.wait()
    assert checkpoint(f"state {pid}") == "CUDA_ERROR_INVALID_VALUE"


def test_program_without_libcuda_is_said(mgpu: Arbiter, checkpoint: Checkpoint) -> None:
    with container(mgpu, "tinygrad_cases.py", "work") as (tinygrad, pid):
        tinygrad.line()
        assert checkpoint(f"lock {pid} 1000") == "CUDA_ERROR_NOT_INITIALIZED"
        tinygrad.tell("1")
        assert json.loads(tinygrad.line()) == {"same": True}
        assert tinygrad.end() == 0
