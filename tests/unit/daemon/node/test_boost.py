"""mgpud goes before others while it starts, with the threads that it starts then, and not afterwards."""

import os
import sys

from tests.support.commands import run
from tests.support.places import REPOSITORY

SCRIPT = """
import os, threading
from native_sched.daemon.node import boost
def nices():
    return sorted(os.getpriority(os.PRIO_PROCESS, int(tid)) for tid in os.listdir("/proc/self/task"))
before = boost.begin()
ending = threading.Event()
thread = threading.Thread(target=ending.wait)
thread.start()
print(nices())
boost.end(before)
print(nices())
ending.set()
"""


def said(*prefix: str) -> list[str]:
    return run(*prefix, sys.executable, "-c", SCRIPT, cwd=REPOSITORY).splitlines()


def test_priority_is_raised_while_starting() -> None:
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    assert said() == [f"[{min(nice, -10)}, {min(nice, -10)}]", f"[{nice}, {nice}]"]


def test_priority_is_kept_without_privilege() -> None:
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    assert said("setpriv", "--bounding-set=-sys_nice", "--inh-caps=-all") == [f"[{nice}, {nice}]"] * 2
