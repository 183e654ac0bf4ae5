"""A guest with NVIDIA's driver: all that it decides, and that a kernel which dies ends in one line.

The other ways to break are tried with stand-ins, in test_machine.py.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from lab import collection, guests, pairs
from lab.__main__ import CARD
from lab.error import LabError
from lab.guest import agent
from tests.support.commands import run
from tests.support.places import REPOSITORY

# What is fetched and built the first time is in it.
pytestmark = pytest.mark.timeout(1800)

SPEC = guests.GuestSpec(pairs.PAIRS[0], CARD)
WITHIN_S = 60


def test_every_row_that_is_claimed_is_decided() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lab", "--short", "--memory-mib", "2048"],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0
    decided = re.fullmatch(r"lab: (\d+) rows decided, \d+ differences open", done.stdout.splitlines()[-1])
    assert decided is not None
    assert int(decided[1]) == len(
        {row for test in collection.tests((), collection.short) for row in test.claim.rows}
    )


def test_dead_kernels_are_one_line_and_leave_nothing() -> None:
    pids: list[int] = []

    def asked() -> None:
        with guests.running(SPEC) as guest:
            pids.extend(process.pid for process in (*guest.machine.cards, guest.machine.qemu))
            guest.machine.ask({"run": "tests.lab.seeded:oops", "limit_s": 60}, WITHIN_S)

    with pytest.raises(LabError, match=r"the guest's kernel died; console \S+: .*(sysrq|BUG|panic)") as told:
        asked()
    print(told.value)
    assert "\n" not in str(told.value)
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []


def test_tests_that_hang_say_in_which_call() -> None:
    said = agent.failure("signal:pause", limit_s=1)
    assert said is not None
    assert re.match(r"was not done in 1 s: .*pause", said), said


def test_first_process_waits_for_orphans() -> None:
    program = "from lab.guest import agent; print(agent.failure('tests.lab.seeded:orphan', 5))"
    isolated = ["unshare", "--mount", "--pid", "--fork", "--mount-proc"]
    assert run(*isolated, sys.executable, "-c", program, cwd=REPOSITORY) == "None\n"
