"""A guest with emulated cards: their process, QEMU, the console, and the port on which tests are asked for.

Whatever goes wrong with them is one line with the console's last words, within a bound, and nothing is left
running: a program of ours that is killed takes both with it (PR_SET_PDEATHSIG).
"""

import json
import os
import re
import select
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.error import LabError

SOCKET_S = 15
TAIL_LINES = 4
POLL_S = 0.1
# A guest that runs a test sends a beat each five seconds of its time (lab/guest/agent.py). A busy host delays
# them, for less than this. A test's own limit, times the runner's patience, may be 40 minutes.
SILENT_S = 240
# A program's own fault is a line too: "general protection fault ip:". A trace alone is none of the kernel's:
# NVIDIA's driver prints one when a card that it waits for is lost, and warns when nvidia-uvm lets go of one.
DYING = re.compile(
    rb"Oops:|BUG: |Kernel panic|general protection fault[:,]|divide error:|INFO: task .* blocked"
    rb"|detected stalls|WARNING: CPU: \d+ PID: \d+ at \S+ (?!nvidia_dev_put_uuid)\S+\+0x"
)
TIED = ("setpriv", "--pdeathsig", "KILL")


@dataclass(frozen=True)
class Programs:
    """What is started: a process for each card, by the socket that it makes, and QEMU, which connects.

    All are argument lists. port: the socket that QEMU makes for the agent.
    """

    cards: Mapping[Path, Sequence[str]]
    qemu: Sequence[str]
    port: Path


class Machine:
    """A guest that answers. What goes wrong is a LabError with the console's tail."""

    def __init__(
        self,
        cards: Sequence[subprocess.Popen[bytes]],
        qemu: subprocess.Popen[bytes],
        port: socket.socket,
        console: Path,
    ):
        self.cards = cards
        self.qemu = qemu
        self._port = port
        self._console = console
        self._waiting = b""

    def ask(self, message: dict[str, Any], within_s: float) -> dict[str, Any]:
        self.send(message)
        return self.answer(within_s, f"no answer to {message} in {within_s:g} s")

    def answer(self, within_s: float, otherwise: str) -> dict[str, Any]:
        until = time.monotonic() + within_s
        said = self._line(until, otherwise)
        while "beat" in said:
            silent = time.monotonic() + SILENT_S
            still = f"the guest stands still since its second {said['beat']:g}"
            said = self._line(silent, still) if silent < until else self._line(until, otherwise)
        return said

    def _line(self, until: float, otherwise: str) -> dict[str, Any]:
        while b"\n" not in self._waiting:
            if time.monotonic() > until:
                raise self.failure(otherwise)
            said = self._heard()
            self._waiting += said
            if not said:
                time.sleep(POLL_S)
                self._alive()
        line, self._waiting = self._waiting.split(b"\n", 1)
        answered: dict[str, Any] = json.loads(line)
        return answered

    def end(self, within_s: float) -> None:
        self.send({"end": True})
        try:
            self.qemu.wait(within_s)
        except subprocess.TimeoutExpired:
            raise self.failure(f"the guest did not switch itself off in {within_s:g} s") from None

    def send(self, message: dict[str, Any]) -> None:
        # QEMU ends as its card does; why is found out by whoever waits for the answer.
        with suppress(OSError):
            self._port.sendall(json.dumps(message).encode() + b"\n")

    def _heard(self) -> bytes:
        with suppress(OSError):
            return self._port.recv(65536) if _readable(self._port, POLL_S) else b""
        return b""

    def failure(self, what: str) -> LabError:
        lines = _words(self._console)
        dying = [number for number, line in enumerate(lines) if DYING.search(line.encode())]
        tail = lines[dying[0] : dying[0] + TAIL_LINES] if dying else lines[-TAIL_LINES:]
        return LabError(f"{what}; console ({self._console}): {' | '.join(tail) or 'nothing'}")

    def _alive(self) -> None:
        ended = [card.returncode for card in self.cards if card.poll() is not None]
        # A card's process ends with 0 because its guest has ended.
        if not any(ended) and DYING.search(self._console.read_bytes()):
            time.sleep(POLL_S)
            raise self.failure("the guest's kernel died")
        if ended:
            raise self.failure(f"the card's process ended with {max(ended, key=abs)}")
        if self.qemu.poll() is not None:
            raise self.failure(f"the guest ended with {self.qemu.returncode}")


@contextmanager
def started(programs: Programs, folder: Path, *, boot_s: float) -> Iterator[Machine]:
    """The guest, once its agent is there. Its logs stay in `folder`."""
    console = folder / "console.log"
    console.touch()
    with ExitStack() as stack:
        cards = stack.enter_context(plugged(programs, folder))
        words = [*programs.qemu, *ports(console, programs.port)]
        qemu = stack.enter_context(_program(words, folder / "qemu.out"))
        _wait_for(programs.port, qemu, folder / "qemu.out")
        port = stack.enter_context(_connected(programs.port))
        machine = Machine(cards, qemu, port, console)
        machine.answer(boot_s, f"the guest did not come up in {boot_s:g} s")
        yield machine


@contextmanager
def plugged(programs: Programs, folder: Path) -> Iterator[Sequence[subprocess.Popen[bytes]]]:
    """The cards' processes, each with its socket there."""
    with ExitStack() as stack:
        cards = []
        for number, (path, words) in enumerate(programs.cards.items()):
            out = folder / f"card{number}.out"
            card = stack.enter_context(_program(words, out))
            _wait_for(path, card, out)
            cards.append(card)
        yield cards


def ports(console: Path, port: Path) -> list[str]:
    """QEMU's words for the first serial port, the console, and the second one, the agent's."""
    return [
        "-serial",
        f"file:{console}",
        "-chardev",
        f"socket,id=port,path={port},server=on,wait=off",
        "-serial",
        "chardev:port",
    ]


@contextmanager
def _program(words: Sequence[str], said: Path) -> Iterator[subprocess.Popen[bytes]]:
    with said.open("wb") as out:
        process = subprocess.Popen(
            [*TIED, *words], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _wait_for(path: Path, process: subprocess.Popen[bytes], said: Path) -> None:
    until = time.monotonic() + SOCKET_S
    while not path.exists():
        if process.poll() is not None or time.monotonic() > until:
            last = " | ".join(_words(said)[-TAIL_LINES:]) or "no word"
            raise LabError(f"{path.name} was not there in {SOCKET_S} s ({said}): {last}")
        time.sleep(0.02)


def _connected(path: Path) -> socket.socket:
    """Its file is there a moment before anybody listens."""
    until = time.monotonic() + SOCKET_S
    while True:
        port = socket.socket(socket.AF_UNIX)
        try:
            port.connect(os.fspath(path))
            return port
        except ConnectionRefusedError:
            port.close()
            if time.monotonic() > until:
                raise LabError(f"nobody listens at {path}") from None
            time.sleep(0.02)


def _words(path: Path) -> list[str]:
    text = path.read_bytes().decode(errors="replace").replace("\r", "\n")
    return [line.strip() for line in text.splitlines() if line.strip()]


def _readable(port: socket.socket, within_s: float) -> bool:
    poller = select.poll()
    poller.register(port, select.POLLIN)
    return bool(poller.poll(within_s * 1000))
