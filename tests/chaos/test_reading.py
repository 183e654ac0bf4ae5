"""What the other tests here read is what happened, and what they do to a node is over afterwards."""

import os
import struct
import subprocess
from pathlib import Path
from typing import cast

import pytest

from tests.chaos.faults import Node, starved
from tests.chaos.field import Ring, one_installation


def test_call_that_is_half_written_is_not_read(tmp_path: Path) -> None:
    """Its place has the instants of an earlier call, or the end of one."""
    ring = Ring(tmp_path / "ring")
    with (tmp_path / "ring").open("r+b") as file:
        file.write(struct.pack("=Q6Q", 3, 100, 140, 200, 60, 0, 0))
    assert ring.calls == 3
    assert [call for call in ring.since(0) if call[0] > 90] == [(100, 140)]
    ring.close()


def test_installation_under_a_run_is_the_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "library"
    library.touch()
    monkeypatch.setattr("oci_specs.paths.lib", lambda name: str(library))
    with one_installation():
        pass

    def replaced() -> None:
        with one_installation():
            library.unlink()
            library.write_bytes(b"another")
            raise RuntimeError("what came of it")

    with pytest.raises(AssertionError, match="installed anew"):
        replaced()


def test_starving_leaves_nothing_on_what_began_meanwhile() -> None:
    """A helper that stayed starved made online calls wait long after it."""
    begins = ["sh", "-c", "read x; sleep 60 & echo $!; wait"]
    with subprocess.Popen(begins, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as mgpud:
        assert mgpud.stdin is not None
        assert mgpud.stdout is not None
        found = {"mgpud": [mgpud.pid]}

        class Few:
            def pids(self, program: str) -> list[int]:
                return found.get(program, [])

        with starved(cast(Node, Few())):
            print("x", file=mgpud.stdin, flush=True)
            helper = int(mgpud.stdout.readline())
            found["/mgpu-checkpoint"] = [helper]
            assert os.sched_getscheduler(helper) == os.SCHED_IDLE
        for pid in (mgpud.pid, helper):
            assert os.sched_getscheduler(pid) == os.SCHED_OTHER
            assert os.sched_getaffinity(pid) == os.sched_getaffinity(0)
        os.kill(helper, 9)
