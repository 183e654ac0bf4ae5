"""A guest with NVIDIA's driver: what it decides, and that each way to break it ends in one line."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from lab import guests, pairs
from lab.__main__ import CARD
from lab.error import LabError
from tests.support.places import REPOSITORY

# What is fetched and built the first time is in it.
pytestmark = pytest.mark.timeout(1800)

WISH = guests.Wish(pairs.PAIRS[0], CARD)
WITHIN_S = 40


def test_sample_decides_its_rows() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lab", "--sample"],
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
    assert int(decided[1]) >= 3


def killed_card(guest: guests.Running) -> None:
    os.kill(guest.machine.cards[0].pid, signal.SIGKILL)


def stopped_guest(guest: guests.Running) -> None:
    os.kill(guest.machine.qemu.pid, signal.SIGSTOP)


def nothing(guest: guests.Running) -> None:
    pass


@pytest.mark.parametrize(
    ("seed", "done_to_it", "said"),
    [
        ("oops", nothing, r"the guest's kernel died; console \S+: .*(sysrq|BUG|panic)"),
        ("hang", killed_card, "the card's process ended with -9; console"),
        ("hang", stopped_guest, f"no answer to .* in {WITHIN_S} s; console"),
    ],
    ids=["oops", "killed card", "hung guest"],
)
def test_broken_guests_are_one_line_and_leave_nothing(
    seed: str, done_to_it: Callable[[guests.Running], None], said: str
) -> None:
    pids: list[int] = []

    def asked() -> None:
        with guests.running(WISH) as guest:
            pids.extend(process.pid for process in (*guest.machine.cards, guest.machine.qemu))
            done_to_it(guest)
            began = time.monotonic()
            try:
                guest.machine.ask({"run": f"tests.lab.seeded:{seed}", "limit_s": 3600}, WITHIN_S)
            finally:
                assert time.monotonic() - began < 2 * WITHIN_S

    with pytest.raises(LabError, match=said) as told:
        asked()
    print(told.value)
    assert "\n" not in str(told.value)
    assert [pid for pid in pids if os.path.exists(f"/proc/{pid}")] == []
