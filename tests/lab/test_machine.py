"""A guest that breaks gives one line within a bound and leaves nothing running: with stand-ins."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from lab.error import LabError
from lab.machine import Machine, Programs, started

WARNING = "WARNING: CPU: 1 PID: 187 at /nvidia/nv.c:5213"
# It ends once somebody has connected.
CARD = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); s.accept()"
# It is told as QEMU is: -serial file:CONSOLE -chardev socket,...,path=PORT,...
GUEST = """
import re, socket, sys, time
told = " ".join(sys.argv)
console = open(re.search(r"file:(\\S+)", told)[1], "a", buffering=1)
s = socket.socket(socket.AF_UNIX); s.bind(re.search(r"path=([^,]+)", told)[1]); s.listen()
c, _ = s.accept()
console.write("guest up\\n")
c.sendall(b'{"ready": true}\\n')
c.recv(4096)
%s
time.sleep(60)
"""


def ask(
    tmp_path: Path, guest: str, *, kill_card: bool = False, within_s: float = 2
) -> tuple[str, list[int]]:
    """What the laboratory says of that guest, and the processes there were."""
    card = tmp_path / "card"
    programs = Programs(
        {card: [sys.executable, "-c", CARD, str(card)]},
        [sys.executable, "-c", GUEST % guest],
        tmp_path / "port",
    )
    pids: list[int] = []

    def asked() -> None:
        with started(programs, tmp_path, boot_s=20) as machine:
            pids.extend(running(machine))
            if kill_card:
                os.kill(machine.cards[0].pid, signal.SIGKILL)
            machine.ask({"run": "x"}, within_s)

    with pytest.raises(LabError) as told:
        asked()
    return str(told.value), pids


def running(machine: Machine) -> list[int]:
    return [process.pid for process in (*machine.cards, machine.qemu)]


def gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.parametrize(
    ("guest", "line"),
    [
        ("console.write('[1.0] BUG: kernel NULL pointer\\n[1.1] RIP: x\\n')", "the guest's kernel died"),
        (f"console.write('[1.0] {WARNING} track_pfn_remap+0x5/0x9\\n')", "the guest's kernel died"),
        (f"console.write('[1.0] {WARNING} nvidia_dev_put_uuid+0x5/0x9 [nvidia]\\n')", "no answer to"),
        ("", "no answer to {'run': 'x'} in 2 s"),
        ("console.write('traps: dash[3] general protection fault ip:7f\\n')", "no answer to"),
        ("sys.exit(3)", "the guest ended with 3"),
    ],
    ids=["oops", "warning", "warning of a card that is lost", "hang", "fault of a program", "end"],
)
def test_broken_guests_are_one_line_with_the_console(tmp_path: Path, guest: str, line: str) -> None:
    began = time.monotonic()
    said, pids = ask(tmp_path, guest)
    assert time.monotonic() - began < 30
    assert said.startswith(line)
    assert "console" in said
    assert "\n" not in said
    assert gone(pids)


def test_guests_that_stand_still_are_seen_before_the_limit_of_their_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.machine.SILENT_S", 1)
    began = time.monotonic()
    beats = "for second in 4, 9: c.sendall(b'{\"beat\": %d.5}\\n' % second); time.sleep(0.7)"
    said, pids = ask(tmp_path, beats, within_s=60)
    assert time.monotonic() - began < 30
    assert said.startswith("the guest stands still since its second 9.5; console")
    assert gone(pids)


def test_oopses_are_shown_from_their_first_line(tmp_path: Path) -> None:
    said, _ = ask(tmp_path, "console.write('[1.0] BUG: kernel NULL pointer\\n[1.1] RIP: x\\n')")
    assert said.endswith("[1.0] BUG: kernel NULL pointer | [1.1] RIP: x")


def test_kernel_that_died_is_named_where_its_card_has_ended_with_it(tmp_path: Path) -> None:
    end_the_card = f"socket.socket(socket.AF_UNIX).connect({str(tmp_path / 'card')!r}); time.sleep(0.5)"
    said, _ = ask(tmp_path, f"console.write('[1.0] Kernel panic\\n'); {end_the_card}")
    assert said.startswith("the guest's kernel died"), said


def test_cards_that_die_are_one_line(tmp_path: Path) -> None:
    said, pids = ask(tmp_path, "", kill_card=True)
    assert said.startswith("the card's process ended with -9")
    assert gone(pids)


def test_programs_that_do_not_start_say_why(tmp_path: Path) -> None:
    broken = Programs(
        {tmp_path / "card": ["sh", "-c", "echo no such chip; exit 2"]}, ["true"], tmp_path / "port"
    )
    with pytest.raises(LabError, match="no such chip"), started(broken, tmp_path, boot_s=5):
        pass
