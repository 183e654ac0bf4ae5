"""A descriptor store as systemd has one for its services: by sd_notify(3) and sd_listen_fds(3)."""

import array
import fcntl
import os
import resource
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from oci_specs.bound_path import bind

# sd_listen_fds(3)
FDS_START = 3
# Limits of one message of the kernel's, and of a line of sd_notify(3) with a name.
FDS_MAX, TEXT_MAX_BYTES = 253, 4096
_UCRED = struct.Struct("=iII")
_FD_BYTES = array.array("i").itemsize


class FdStore:
    """Of one program, which may end and be started again. Nothing that it stores is lost meanwhile."""

    def __init__(self, path: Path, most: int) -> None:
        """path: where it is told what to store; most: how many descriptors."""
        self._most = most
        self.path = path
        self.kept: list[tuple[str, int]] = []
        self._bind()
        _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    def _bind(self) -> None:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            self._at = bind(made, os.fspath(self.path))
        except OSError:
            made.close()
            raise
        self._socket = made

    def is_gone(self) -> bool:
        """Somebody has removed its path: what is told from now on is not heard."""
        return self._at.is_gone()

    def serve_anew(self, pid: int) -> None:
        """Once what the process pid has said so far is done. OSError: there is no place for it yet."""
        self.read(pid)
        before = self._socket
        self._bind()
        before.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()
        self.path.unlink(missing_ok=True)
        for _, fd in self.kept:
            os.close(fd)
        self.kept = []

    def read(self, pid: int) -> None:
        """Do what the process pid has said so far; what others say is dropped."""
        room = socket.CMSG_SPACE(_UCRED.size) + socket.CMSG_SPACE(FDS_MAX * _FD_BYTES)
        with suppress(BlockingIOError):
            while True:
                text, ancillary, _flags, _from = self._socket.recvmsg(
                    TEXT_MAX_BYTES, room, socket.MSG_CMSG_CLOEXEC
                )
                self._said(text, ancillary, pid)

    def become(self, argv: Sequence[str]) -> None:
        """Make this process, a child that has not begun its program, the one that has what is stored."""
        end = FDS_START + len(self.kept)
        out_of_the_way = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, end) for _, fd in self.kept]
        for to, fd in enumerate(out_of_the_way, FDS_START):
            os.dup2(fd, to)
        os.closerange(end, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        os.environ["NOTIFY_SOCKET"] = os.fspath(self.path)
        os.environ["LISTEN_PID"] = str(os.getpid())
        os.environ["LISTEN_FDS"] = str(len(self.kept))
        os.environ["LISTEN_FDNAMES"] = ":".join(name for name, _ in self.kept)
        os.execv(argv[0], list(argv))

    def _said(self, text: bytes, ancillary: Sequence[tuple[int, int, bytes]], pid: int) -> None:
        fds, sender = array.array("i"), 0
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds.frombytes(data[: len(data) // _FD_BYTES * _FD_BYTES])
            elif (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                sender = _UCRED.unpack(data)[0]
        said = dict(line.split("=", 1) for line in text.decode(errors="replace").splitlines() if "=" in line)
        name = said.get("FDNAME", "stored")
        closed = list(fds)
        if sender == pid and said.get("FDSTOREREMOVE") == "1":
            closed += [fd for kept, fd in self.kept if kept == name]
            self.kept = [kept for kept in self.kept if kept[0] != name]
        elif sender == pid and said.get("FDSTORE") == "1" and len(self.kept) + len(fds) <= self._most:
            self.kept += [(name, fd) for fd in fds]
            closed = []
        for fd in closed:
            os.close(fd)
