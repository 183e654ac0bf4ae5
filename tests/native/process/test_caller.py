"""The process behind a notification: its memory is written through what was opened while it waited, and what
a look at it costs does not depend on how it is made.
"""

import errno
import functools
import subprocess
from pathlib import Path

import pytest

from tests.native import engine_parts
from tests.support.commands import attempt
from tests.support.places import REPOSITORY

GROUPS_MAX = 65536


@functools.cache
def program() -> Path:
    out = engine_parts.folder() / "caller_recycled"
    process = REPOSITORY / "native_sched" / "process"
    sources = [Path(__file__).with_name("caller_recycled.c"), process / "caller.c", process / "weak_ref.c"]
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{REPOSITORY}"]
    subprocess.run(["gcc", *flags, "-o", out, *sources], check=True)
    return Path(out)


def run(groups: int) -> tuple[str, int, bool, int, float]:
    done = attempt(program(), str(groups))
    if done.status == 77:
        pytest.skip("another process took the number first")
    assert done.status == 0, done
    found, wrote, same, levels, took_us = done.out.split()
    return found, int(wrote), bool(int(same)), int(levels), float(took_us)


def test_answer_never_lands_in_a_process_that_took_the_callers_number() -> None:
    found, wrote, same, levels, _ = run(0)
    assert (found, wrote) == ("untouched", -errno.EFAULT)
    assert same
    assert levels >= 1


def test_caller_in_many_groups_is_looked_up_as_quickly() -> None:
    few = min(run(0)[4] for _ in range(3))
    many = min(run(GROUPS_MAX)[4] for _ in range(3))
    assert many < 10 * few, (few, many)
