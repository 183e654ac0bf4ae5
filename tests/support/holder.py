"""The holder as container runtimes and mgpuds meet it. A memfd stands in for a seccomp listener, and a pipe
whose writers are gone for one that has hung up.
"""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from native_sched.daemon.links.holder import HolderLink, Listener
from oci_specs import paths
from tests.support.places import REPOSITORY
from tests.support.waiting import until

HEAD = struct.Struct("=IIQ")
LISTENER, HELLO, WELCOME, REFUSED, ALL, STATUS = 1, 3, 4, 5, 6, 8
SERVING = 2
# A mgpud in a process of its own: says what it is sent in lines of JSON, and does what it is told in words.
MGPUD = """
import json, os, select, sys, threading
from native_sched.daemon.node import mgpud_lock
from native_sched.daemon.links.holder import HolderLink
from oci_specs.refusal import Refusal

def say(**words):
    os.write(1, (json.dumps({"pid": os.getpid()} | words) + "\\n").encode())

def got(listener):
    say(listener=listener.holder_id, container=listener.container_id, file=os.fstat(listener.fd).st_ino)

socket, *flags = sys.argv[1:]
if "--standby" in flags:
    os.write(0, b"+")
    say(standby=True)
    if not os.read(0, 1):
        sys.exit(0)
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
try:
    link = HolderLink(socket, take_over="--take-over" in flags)
except Refusal as refusal:
    print(refusal.line(), file=sys.stderr)
    sys.exit(1)
link.when_all_came = lambda count: say(all=count)
with mgpud_lock.held(os.path.join(os.path.dirname(socket), "mgpud.lock"), fence=link.fence):
    say(welcome=link.fence)
    link.read_all(got)
    if "--beat" in flags:
        def beat():
            while True:
                link.alive()
                threading.Event().wait(0.1)
        threading.Thread(target=beat, daemon=True).start()
    if "--spin" in flags:
        link.alive()
        while True:
            pass
    told = [0]
    while True:
        ready, _, _ = select.select([link.fileno(), *told], [], [])
        if link.fileno() in ready and not link.read(got):
            say(gone=True)
            link.close()
            select.select([], [], [], 60)
        if 0 in ready:
            word, _, number = os.read(0, 100).decode().strip().partition(" ")
            if not word:
                told = []
            elif word == "drop":
                link.drop(int(number))
                say(dropped=int(number))
            elif word == "alive":
                link.alive()
            elif word == "close":
                link.close()
                select.select([], [], [], 60)
            else:
                sys.exit(int(number or 0))
"""


def message(container: str = "c1", metadata: str = "nonce", **more: object) -> bytes:
    """What runc sends with a listener."""
    state = {
        "ociVersion": "1.0.2",
        "id": container,
        "status": "creating",
        "pid": 7,
        "bundle": '/b{\\"}',
    } | more
    return json.dumps({"fds": ["seccompFd"], "pid": 7, "metadata": metadata, "state": state}).encode()


def stand_in() -> tuple[int, int]:
    """(an fd to send, a file number to know it by)."""
    fd = os.memfd_create("listener")
    return fd, os.fstat(fd).st_ino


def send(link: socket.socket, data: bytes, fds: list[int]) -> None:
    socket.send_fds(link, [data], fds)
    for fd in fds:
        os.close(fd)


class Received(NamedTuple):
    """A listener that has come; file: the number of its file, which the link keeps open."""

    holder_id: int
    container_id: str
    metadata: str
    status: str
    file: int


def receive(mgpud: HolderLink, count: int) -> list[Received]:
    got: list[Received] = []

    def take(one: Listener) -> None:
        file = os.fstat(one.fd).st_ino
        os.close(one.fd)
        got.append(Received(one.holder_id, one.container_id, one.metadata, one.status, file))

    until(lambda: mgpud.read(take) and len(got) >= count, f"{count} listeners")
    return got


class Mgpud:
    """A mgpud that is a process of its own, in the tests' hands."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    @property
    def pid(self) -> int:
        return self.process.pid

    def said(self) -> dict[str, object]:
        """The next line; AssertionError at the end of its output."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "mgpud has ended"
        words: dict[str, object] = json.loads(line)
        return words

    def tell(self, *words: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def start(self) -> dict[int, str]:
        """Until every listener that was there has come: their containers by id."""
        assert "welcome" in self.said()
        found: dict[int, str] = {}
        while "all" not in (said := self.said()):
            found[int(str(said["listener"]))] = str(said["container"])
        assert said["all"] == len(found)
        return found


class Status(NamedTuple):
    """struct holder_status."""

    replaced: int
    mgpud_pid: int
    starts_mgpud: int
    listeners: int
    killed: int
    starting: int
    refused: int


@dataclass(frozen=True)
class Holder:
    folder: Path
    process: subprocess.Popen[str]

    @property
    def mgpud_socket(self) -> Path:
        return self.folder / "holder.sock"

    def log(self) -> str:
        return (self.folder / "holder.log").read_text()

    def runtime(self) -> socket.socket:
        """A connection as a container runtime makes it."""
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.connect(str(self.folder / "seccomp.sock"))
        return link

    def arrives(self, *containers: str) -> list[int]:
        """A listener of each arrives; their file numbers."""
        files = []
        for container in containers:
            fd, file = stand_in()
            files.append(file)
            with self.runtime() as runtime:
                send(runtime, message(container), [fd])
        return files

    def mgpud(self, *, take_over: bool = False) -> HolderLink:
        """A mgpud that is the tests' own process."""
        return HolderLink(str(self.mgpud_socket), take_over=take_over)

    def stranger(self) -> socket.socket:
        link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        link.connect(str(self.mgpud_socket))
        return link

    @contextmanager
    def mgpud_process(self, *flags: str) -> Iterator[Mgpud]:
        with subprocess.Popen(
            mgpud_argv(self.folder, *flags),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield Mgpud(process)
            finally:
                process.kill()

    def status(self) -> Status:
        with self.stranger() as asks:
            asks.send(HEAD.pack(STATUS, 0, 0))
            said = asks.recv(100)
        kind, _protocol, replaced = HEAD.unpack_from(said)
        assert kind == STATUS
        return Status(replaced, *struct.unpack_from("=6I", said, HEAD.size))

    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


def mgpud_argv(folder: Path, *flags: str) -> list[str]:
    code = f"import sys\nsys.path.insert(0, {str(REPOSITORY)!r})\n{MGPUD}"
    return [sys.executable, "-c", code, str(folder / "holder.sock"), *flags]


@contextmanager
def holding(
    folder: Path, *options: str | Path, mgpud: Sequence[str | Path] = (), program: Path | None = None
) -> Iterator[Holder]:
    """A holder, ready, which is to end well unless the tests have waited for its end.

    mgpud: the command that it runs, if any; its words go to folder/mgpud.log.
    """
    argv: list[str | Path] = [program or paths.libexec("mgpu-holder")]
    argv += ["--seccomp-socket", folder / "seccomp.sock"]
    argv += ["--mgpud-socket", folder / "holder.sock", *options]
    if mgpud:
        argv += [
            "--mgpud-log",
            folder / "mgpud.log",
            "--mgpud-lock",
            folder / "mgpud.lock",
            "--",
            *mgpud,
        ]
    with (folder / "holder.log").open("ab") as log:
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=log, text=True)
    with process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            yield Holder(folder, process)
            if process.returncode is None:
                process.terminate()
                assert process.wait(10) == 0
                assert not (folder / "seccomp.sock").exists()
        finally:
            process.send_signal(signal.SIGKILL)
