"""A process that has a tenant's file ends the tenant's container in seconds, however many descriptors the
node's other processes have.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.hostile.composed import client_of, files_of
from tests.hostile.siege import Siege
from tests.support.waiting import took_s, until

# Begins each second, takes a quarter and what it costs, and two in a row have to find it. The rest is a
# machine's that does other things too: without a bound each look here takes 20 s.
OVER_MAX_S = 8.0
DESCRIPTORS = 100_000

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
