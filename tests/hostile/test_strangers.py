"""A process that has a tenant's file ends the tenant's container in seconds, however many descriptors the
node's other processes have.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.chaos.field import tenant
from tests.hostile.composed import client_of, files_of
from tests.hostile.siege import Siege
from tests.support import arbiter, host
from tests.support.programs import ABOUT_TO_EXEC, Programs
from tests.support.waiting import took_s, until

# Begins each second, takes a quarter and what it costs, and two in a row have to find it. The rest is a
# machine's that does other things too: without a bound each look here takes 20 s.
OVER_MAX_S = 8.0
DESCRIPTORS = 100_000
# Several looks at all processes, the last two of which one would do.
LOOKS_S = 4.0

CROWD = """
import os, sys
processes, descriptors = map(int, sys.argv[1:])
for _ in range(descriptors):
    os.dup(0)
for _ in range(processes - 1):
    if not os.fork():
        break
else:
    print("there", flush=True)
sys.stdin.read()
"""


@contextmanager
def crowd(processes: int, descriptors: int) -> Iterator[None]:
    """So many processes without a grant, which have so many in all. They end with their standard input."""
    argv = [sys.executable, "-c", CROWD, str(processes), str(descriptors // processes)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as made:
        assert made.stdout is not None
        assert made.stdout.readline() == "there\n"
        yield


@pytest.mark.parametrize("processes", [1, 6, 1000])
def test_stranger_is_found_in_seconds_among_many_descriptors(siege: Siege, processes: int) -> None:
    descriptors = DESCRIPTORS if processes > 1 else 0
    with crowd(processes, descriptors), siege.attempt("foreign_handles", "own") as own:
        assert own.line() == "made"
        use = client_of(siege, siege.mgpu.account().cards[0], own)
        assert use is not None
        time.sleep(2)  # a look has found out by now how long it takes
        with files_of(use.tgid):
            ended_s = took_s(lambda: until(own.has_ended, "it is ended", timeout_s=90))
    print(f"{descriptors} descriptors of {processes} processes: {ended_s:.2f} s")
    assert ended_s < OVER_MAX_S


def test_child_of_mgpud_that_has_not_begun_its_program_is_no_stranger(built: Programs) -> None:
    """It shares mgpud's memory and has its descriptors, those of containers' files among them."""
    with host.home("child") as folder:
        env = {
            "LD_PRELOAD": f"{os.environ.get('LD_PRELOAD', '')} {built.folder / ABOUT_TO_EXEC}".strip(),
            "MGPU_TEST_CHILD": str(folder / "begin"),
        }
        with arbiter.running("h200:1", env=env) as mgpu, tenant(mgpu, built, 0, 1) as steadfast:
            mgpud = mgpu.pid_of("mgpud")
            (folder / "begin").touch()
            until(lambda: not (folder / "begin").exists(), "the child is there")
            [child] = children_like(mgpud)
            time.sleep(LOOKS_S)
            assert steadfast.running.process.poll() is None
            assert child in children_like(mgpud)


def children_like(pid: int) -> list[int]:
    """The children of a process that have its command line, since they share its memory."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes()
    children = Path(f"/proc/{pid}/task").glob("*/children")
    found = [int(child) for each in children for child in each.read_text().split()]
    return [child for child in found if Path(f"/proc/{child}/cmdline").read_bytes() == words]
