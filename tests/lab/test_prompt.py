"""`make lab SHELL=1`: somebody types into the guest's prompt and finds the card, mgpud and tinygrad."""

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from tests.support.places import REPOSITORY

# A guest that boots, and imports of Python's on an emulated processor.
pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

PATIENCE_S = 400
# What is typed is echoed, so an answer is a sum that was not typed.
TYPED = (
    ("test -c /dev/nvidia0 && echo card $((40+2))", "card 42"),
    ("until mgpu devices; do sleep 1; done && echo served $((40+2))", "served 42"),
    (
        "PYTHONPATH=/project/foreign-550 PTX=1 python3 -c "
        "\"from tinygrad.device import Device; print('arch', Device['NV'].arch)\"",
        "arch sm_86",
    ),
)


@contextmanager
def prompt() -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """The terminal that the prompt is on."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "lab", "--shell"], cwd=REPOSITORY, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    try:
        yield ours, process
    finally:
        process.terminate()
        process.wait(60)
        os.close(ours)


def heard(terminal: int, word: str) -> str:
    """All that it says until that word."""
    said, until = b"", time.monotonic() + PATIENCE_S
    poll = select.poll()
    poll.register(terminal, select.POLLIN)
    while word.encode() not in said:
        assert time.monotonic() < until, f"no {word!r} in {said.decode(errors='replace')[-600:]!r}"
        if poll.poll(1000):
            with suppress(OSError):
                said += os.read(terminal, 4096)
    return said.decode(errors="replace")


def test_prompt_has_the_card_mgpud_and_tinygrad() -> None:
    with prompt() as (terminal, process):
        heard(terminal, "PTX=1 python3")
        for line, answer in TYPED:
            os.write(terminal, line.encode() + b"\n")
            heard(terminal, answer)
        os.write(terminal, b"poweroff -f\n")
        assert process.wait(PATIENCE_S) == 0
