"""`mgpu upgrade` before anything that runs here: a holder that is a socket in the tests' hands."""

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mgpu_cli import client, upgrade
from mgpu_cli.main import main
from runtime_hook.holder import _HEAD, _REST

Answer = tuple[int, ...]


def run(root: Path) -> Result:
    return CliRunner().invoke(main, ["upgrade", "--root", str(root)])


def run_beside(root: Path, now: Callable[[], Answer]) -> Result:
    """With a holder that answers status with what `now` says: replaced, and then the rest."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as holder:
        holder.bind(str(root / "holder.sock"))
        holder.listen(8)

        def serve() -> None:
            while True:
                try:
                    link, _ = holder.accept()
                except OSError:
                    return
                with link:
                    link.recv(100)
                    replaced, *rest = now()
                    link.send(_HEAD.pack(8, 1, replaced) + _REST.pack(*rest))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        done = run(root)
        holder.shutdown(socket.SHUT_RDWR)
        thread.join()
    return done


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Signals that would have been sent."""
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    monkeypatch.setattr(upgrade, "_LOOK_S", 0.001)
    return sent


def test_upgrade_fails_when_mgpu_is_not_running(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("mgpu: mgpu is not running: no answer on ")


def test_upgrade_fails_on_a_silent_holder(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as old:
        old.bind(str(tmp_path / "holder.sock"))
        old.listen(1)
        thread = threading.Thread(target=lambda: old.accept()[0].close())
        thread.start()
        done = run(tmp_path)
        thread.join()
    assert done.exit_code == 1
    assert "is of another version of mgpu" in done.stderr


def answers(monkeypatch: pytest.MonkeyPatch, pid: Callable[[], int]) -> None:
    def health(_socket: Path, _verb: str) -> dict[str, object]:
        now = pid()
        return {"pid": now, "containers": 3, "build": f"0.1.0 ({now})", "prefix": sys.prefix}

    monkeypatch.setattr(client, "ask", health)


def test_upgrade_replaces_holder_and_mgpud(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signals: list[tuple[int, int]]
) -> None:
    def renewed() -> bool:
        return (os.getpid(), signal.SIGUSR1) in signals

    answers(monkeypatch, lambda: 8 if renewed() else 7)
    done = run_beside(tmp_path, lambda: (1 if signals else 0, 8 if renewed() else 7, 1, 3, 0, 0, 0))
    assert done.exit_code == 0, done.stderr
    first, second = done.stdout.splitlines()
    # What answers for the holder here is this Python.
    assert first == f"holder (pid {os.getpid()}): unknown in place of unknown; it holds 3 listeners"
    assert second.startswith("mgpud (pid 8): 0.1.0 (8) in place of 0.1.0 (7) (pid 7) after ")
    assert second.endswith(" s; it serves 3 containers")
    assert signals == [(os.getpid(), signal.SIGHUP), (os.getpid(), signal.SIGUSR1)]


def test_upgrade_says_when_it_renewed_another_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signals: list[tuple[int, int]]
) -> None:
    answers(monkeypatch, lambda: 8 if len(signals) == 2 else 7)
    here, elsewhere = sys.prefix, "/opt/newer"
    signalled = os.kill

    def kill(pid: int, number: int) -> None:
        signalled(pid, signal.Signals(number))
        if number == signal.SIGUSR1:
            monkeypatch.setattr(sys, "prefix", elsewhere)

    monkeypatch.setattr(os, "kill", kill)
    monkeypatch.setattr(upgrade, "_until", lambda _limit_s, done: done())
    answered = client.ask

    def ask(at: Path, verb: str) -> dict[str, object]:
        return answered(at, verb) | {"prefix": here}

    monkeypatch.setattr(client, "ask", ask)
    done = run_beside(tmp_path, lambda: (1 if signals else 0, 7, 1, 3, 0, 0, 0))
    assert done.exit_code == 0, done.stderr
    assert f"what runs is installed in {here}, and this command in {elsewhere}" in done.stderr


def test_upgrade_fails_when_the_holder_is_not_replaced(
    tmp_path: Path, signals: list[tuple[int, int]]
) -> None:
    done = run_beside(tmp_path, lambda: (0, 7, 1, 3, 0, 0, 1 if signals else 0))
    assert (done.exit_code, done.stdout) == (1, "")
    assert "goes on as it was" in done.stderr
    assert signals == [(os.getpid(), signal.SIGHUP)]


def test_new_mgpud_that_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signals: list[tuple[int, int]]
) -> None:
    answers(monkeypatch, lambda: 7)
    seen = 0

    def now() -> Answer:
        nonlocal seen
        seen += len(signals) == 2
        return (1 if signals else 0, 7, 1, 3, 0, 1 if 0 < seen < 3 else 0, 0)

    done = run_beside(tmp_path, now)
    assert done.exit_code == 1
    assert "the new mgpud does not serve, and that before (pid 7) goes on" in done.stderr


def test_upgrade_refuses_an_unsupervised_mgpud(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signals: list[tuple[int, int]]
) -> None:
    monkeypatch.setattr(upgrade, "_main_pid", lambda: 0)
    done = run_beside(tmp_path, lambda: (1 if signals else 0, 7, 0, 3, 0, 0, 0))
    assert done.exit_code == 1
    assert "mgpud (pid 7) is run neither by mgpu up nor by mgpud.service" in done.stderr
    assert "--take-over" in done.stderr


def test_systemd_restarts_its_own_mgpud(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signals: list[tuple[int, int]]
) -> None:
    asked = tmp_path / "asked"
    systemctl = tmp_path / "systemctl"
    systemctl.write_text(f'#!/bin/sh\necho "$@" >> {asked}\n[ "$1" = show ] && echo 7; true\n')
    systemctl.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    answers(monkeypatch, lambda: 8)
    done = run_beside(tmp_path, lambda: (1 if signals else 0, 7, 0, 3, 0, 0, 0))
    assert done.exit_code == 0, done.stderr
    assert asked.read_text().splitlines()[-1] == "restart mgpud.service"
    assert signals == [(os.getpid(), signal.SIGHUP)]
