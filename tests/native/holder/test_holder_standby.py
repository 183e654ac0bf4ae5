"""The holder keeps a mgpud that has loaded everything, and calls it when the one that serves has ended."""

import json
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from oci_specs import paths
from tests.support.holder import Holder, holding, mgpud_argv
from tests.support.waiting import until

WATCHDOG_MS = 2500


def said(folder: Path, word: str) -> list[int]:
    """Pids of the mgpuds that have said it, in that order."""
    lines = (folder / "mgpud.log").read_text().splitlines()
    found = [json.loads(line) for line in lines if line.startswith("{")]
    return [each["pid"] for each in found if word in each]


def standing_by(holder: Holder, count: int) -> int:
    """The pid of the count-th that stands by."""
    until(lambda: len(said(holder.folder, "standby")) >= count, f"{count} have stood by", timeout_s=30)
    return said(holder.folder, "standby")[count - 1]


def serving(holder: Holder, count: int) -> int:
    until(lambda: len(said(holder.folder, "all")) >= count, f"{count} have served", timeout_s=30)
    return said(holder.folder, "all")[count - 1]


def there(pid: int) -> bool:
    """Not even as one that has ended and was not waited for."""
    return Path(f"/proc/{pid}").exists()


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return Path(shutil.copy2(paths.libexec("mgpu-holder"), tmp_path / "mgpu-holder"))


@pytest.fixture
def holder(tmp_path: Path, program: Path) -> Iterator[Holder]:
    options = ("--standby", "--watchdog-ms", str(WATCHDOG_MS))
    with holding(tmp_path, *options, mgpud=mgpud_argv(tmp_path, "--beat"), program=program) as running:
        yield running


def test_standby_serves_next(holder: Holder) -> None:
    for number in range(1, 4):
        holder.arrives(f"c{number}")
        next_pid = standing_by(holder, number)
        os.kill(serving(holder, number), signal.SIGKILL)
        assert serving(holder, number + 1) == next_pid
    lines = (holder.folder / "mgpud.log").read_text().splitlines()
    has = {json.loads(line).get("container") for line in lines if f'"pid": {next_pid}' in line}
    assert {"c1", "c2", "c3"} <= has


def test_standby_has_no_descriptor_of_the_holder_s_but_its_line(holder: Holder) -> None:
    holder.arrives("a")
    serving(holder, 1)
    pid = standing_by(holder, 1)
    kinds = {int(fd): os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
    assert set(kinds) == {0, 1, 2}
    assert kinds[0].startswith("socket:")
    assert kinds[1] == kinds[2] == str(holder.folder / "mgpud.log")
    assert (holder.status().mgpud_pid, holder.status().starting) == (serving(holder, 1), 0)


def test_standby_that_does_not_hear_its_call_is_killed(holder: Holder) -> None:
    deaf = standing_by(holder, 1)
    os.kill(deaf, signal.SIGSTOP)
    os.kill(serving(holder, 1), signal.SIGKILL)
    assert serving(holder, 2) != deaf
    assert f"standby {deaf} does not answer: killed" in holder.log()
    assert not there(deaf)


def test_standby_that_ended_is_followed_by_a_mgpud_from_the_start(holder: Holder) -> None:
    gone = standing_by(holder, 1)
    os.kill(gone, signal.SIGKILL)
    until(lambda: f"standby {gone} ended with signal 9" in holder.log(), "its end is seen")
    os.kill(serving(holder, 1), signal.SIGKILL)
    assert serving(holder, 2) != gone
    assert standing_by(holder, 2) != gone


def test_both_killed_at_once(holder: Holder) -> None:
    for number in range(1, 4):
        next_pid = standing_by(holder, number)
        os.kill(next_pid, signal.SIGKILL)
        os.kill(serving(holder, number), signal.SIGKILL)
        assert serving(holder, number + 1) != next_pid


def test_mgpud_that_is_stopped_is_followed_by_it(holder: Holder) -> None:
    next_pid = standing_by(holder, 1)
    os.kill(serving(holder, 1), signal.SIGSTOP)
    assert serving(holder, 2) == next_pid


def test_renewed_mgpud_does_not_leave_one_of_the_old_program(holder: Holder) -> None:
    old = standing_by(holder, 1)
    first = serving(holder, 1)
    holder.process.send_signal(signal.SIGUSR1)
    second = serving(holder, 2)
    assert second not in (first, old)
    until(lambda: not there(old), "it is gone")
    next_pid = standing_by(holder, 2)
    os.kill(second, signal.SIGKILL)
    assert serving(holder, 3) == next_pid


def test_nor_does_a_replaced_holder(holder: Holder) -> None:
    old = standing_by(holder, 1)
    first = serving(holder, 1)
    holder.process.send_signal(signal.SIGHUP)
    until(lambda: holder.status().replaced == 1, "it is replaced")
    assert not there(old)
    next_pid = standing_by(holder, 2)
    os.kill(first, signal.SIGKILL)
    assert serving(holder, 2) == next_pid


def test_holder_that_stays_has_another_later(holder: Holder, program: Path) -> None:
    old = standing_by(holder, 1)
    # What it runs is not changed by that, and what is tried out says that it knows the format.
    program.unlink()
    program.write_text(f"#!/bin/sh\nrm {program}\n")
    program.chmod(0o700)
    holder.process.send_signal(signal.SIGHUP)
    until(lambda: holder.status().refused == 1, "it is refused")
    assert not there(old)
    assert standing_by(holder, 2) != old


def test_standby_ends_with_the_holder(holder: Holder) -> None:
    pid = standing_by(holder, 1)
    mgpud = serving(holder, 1)
    holder.process.kill()
    holder.process.wait()
    until(lambda: not there(pid) or "State:\tZ" in Path(f"/proc/{pid}/status").read_text(), "it has ended")
    with suppress(ProcessLookupError):
        os.kill(mgpud, signal.SIGKILL)


def test_standby_ends_with_a_holder_that_ends_well(tmp_path: Path) -> None:
    with holding(tmp_path, "--standby", mgpud=mgpud_argv(tmp_path, "--beat")) as holder:
        pid = standing_by(holder, 1)
    assert not there(pid)
