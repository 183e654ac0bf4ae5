"""A simulated card: its protocol (sim/abi/protocol.h), with no mgpu in between."""

import json
import os
import select
import socket
import struct
import time
from pathlib import Path

from lab.play.kernel import File
from lab.play.memory import Memory

OPEN, IOCTL, FILES = 1, 2, 6
CLOSE_S, SETTLE_S = 0.2, 1.0
NODES = {"ctl": 0, "gpu": 1, "uvm": 2}
REQUEST = struct.Struct("<IIIIQQiIII")
REPLY = struct.Struct("<iIIIQQ")
PACKET_BYTES = 1 << 17


class SimCard:
    name = "simulated"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.begin()

    def begin(self) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(os.fspath(self.path))

    def _ask(self, packet: bytes) -> tuple[bytes, bytes, int, int]:
        """(outer, params, descriptor, file)"""
        self.socket.send(packet)
        data, fds, _, _ = socket.recv_fds(self.socket, PACKET_BYTES, 1)
        error, outer_bytes, _, _, file, _ = REPLY.unpack_from(data)
        if error:
            raise OSError(error, os.strerror(error))
        at = REPLY.size + outer_bytes
        return data[REPLY.size : at], data[at:], fds[0] if fds else -1, file

    def open(self, node: str) -> File:
        _, _, fd, file = self._ask(REQUEST.pack(OPEN, NODES[node], 0, 0, 0, 0, os.getpid(), 0, 0, 0))
        return File(fd, file)

    def close(self, file: File) -> None:
        os.close(file.fd)
        self._closed(file)

    def _closed(self, file: File) -> None:
        """A driver frees all in a last close; the card sees it a little later, or another process has it."""
        head = REQUEST.pack(FILES, 0, 0, 0, 0, 0, os.getpid(), 8, 0, 0)
        end = time.monotonic() + CLOSE_S
        while self._ask(head + struct.pack("<Q", file.id))[0] != b"\0" and time.monotonic() < end:
            time.sleep(0.001)

    def fetch(self, pid: int, file: File) -> File:
        """The process that forked has it here, too."""
        return File(os.dup(file.fd), file.id)

    def poll(self, file: File) -> None:
        with select.epoll() as epoll:
            epoll.register(file.fd, select.EPOLLIN)

    def ioctl(
        self,
        file: File,
        cmd: int,
        outer: bytearray | None,
        params: Memory | None,
        params_bytes: int,
        aux: File | None,
    ) -> None:
        sent = bytes(params.bytes[:params_bytes]) if params else b""
        told = bytes(outer or b"")
        head = REQUEST.pack(
            IOCTL,
            0,
            0,
            cmd & 0xFFFFFFFF,
            file.id,
            aux.id if aux else 0,
            os.getpid(),
            len(told),
            len(sent),
            0,
        )
        answered, behind, fd, _ = self._ask(head + told + sent)
        if outer is not None:
            outer[:] = answered
        if params:
            params.bytes[: len(behind)] = behind
        if fd >= 0:
            assert aux is not None
            os.dup2(fd, aux.fd)
            os.close(fd)
            self._closed(aux)

    def await_closes(self, pid: int | None = None) -> None:
        """Until the card has seen that a process's files are closed, or all files but one."""
        end = time.monotonic() + SETTLE_S
        while time.monotonic() < end:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as admin:
                admin.connect(os.fspath(self.path.with_name("admin.sock")))
                admin.send(b"files")
                files = json.loads(admin.recv(PACKET_BYTES))
            if len(files) <= 1 if pid is None else all(file["tgid"] != pid for file in files):
                return
            time.sleep(0.005)

    def map_at(self, file: File, linear: int) -> int:
        return linear
