"""mgpu-listener at processes that are not as CRIU leaves a program of good will."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oci_specs import paths
from tests.support.commands import attempt
from tests.support.programs import Programs
from tests.support.waiting import readable, until

FDS_MAX = 4
SETTLED_MS = 500


@contextmanager
def stopped(built: Programs, kind: str) -> Iterator[subprocess.Popen[str]]:
    argv: list[str | Path] = [built.folder / "restored", kind]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "stops\n"
            until(lambda: _state(process.pid) == "T", "it is stopped")
            yield process
        finally:
            process.kill()


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]


def give_listener(pid: int, at: Path) -> tuple[int, str, list[int]]:
    """The exit status of mgpu-listener, what it says of errors, and the descriptors that it sends."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(at))
        server.listen()
        state = json.dumps({"fds": ["seccompFd"]})
        done = attempt(paths.libexec("mgpu-listener"), str(pid), at, stdin=state)
        if done.status:
            return done.status, done.err, []
        connection, _ = server.accept()
        with connection:
            return 0, done.err, socket.recv_fds(connection, 1 << 16, FDS_MAX)[1]


def is_listener(fd: int) -> bool:
    return os.readlink(f"/proc/self/fd/{fd}") == "anon_inode:seccomp notify"


def test_code_that_others_can_write_is_not_run(built: Programs, tmp_path: Path) -> None:
    """It would run without a filter."""
    with stopped(built, "shared") as process:
        status, said, fds = give_listener(process.pid, tmp_path / "l")
        assert (status, fds) == (1, [])
        assert "takes no listener" in said
        assert said.count("\n") == 1
        assert process.stdout is not None
        assert not readable(process.stdout, SETTLED_MS), "its code was changed"


def test_trap_that_it_sends_itself_is_not_the_end_of_a_call(built: Programs, tmp_path: Path) -> None:
    with stopped(built, "private") as process:
        os.kill(process.pid, signal.SIGTRAP)
        status, said, fds = give_listener(process.pid, tmp_path / "l")
        assert (status, said) == (0, "")
        assert [is_listener(fd) for fd in fds] == [True]
        for fd in fds:
            os.close(fd)
