"""QEMU's end of the socket: messages of vfio-user to an emulated card, and the card's process."""

import array
import json
import mmap
import os
import socket
import struct
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.places import PREFIX

PROGRAM = PREFIX.parent / "meson" / "lab" / "card" / "mgpu-labcard"
VERSION, DMA_MAP, DMA_UNMAP, GET_INFO, GET_REGION, _, GET_IRQ, SET_IRQS, READ, WRITE = range(1, 11)
RESET, WRITE_MULTI = 13, 15
NO_REPLY = 0x10
BAR0, BAR1, BAR3, CONFIG = 0, 1, 3, 7
HEADER = struct.Struct("<HHIII")
START_S, ANSWER_S = 60, 60


@dataclass
class Reply:
    number: int
    command: int
    error: int
    body: bytes


class Client:
    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(ANSWER_S)
        self.socket.connect(str(path))
        self.number = 0

    def packed(self, command: int, body: bytes = b"", flags: int = 0) -> bytes:
        self.number = (self.number + 1) & 0xFFFF
        return HEADER.pack(self.number, command, HEADER.size + len(body), flags, 0) + body

    def send(self, data: bytes, fds: Sequence[int] = ()) -> None:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        sent = self.socket.sendmsg([data], rights)
        if data[sent:]:
            self.socket.sendall(data[sent:])

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def receive(self) -> Reply:
        number, command, size, _flags, error = HEADER.unpack(self._exactly(HEADER.size))
        return Reply(number, command, error, self._exactly(size - HEADER.size))

    def call(self, command: int, body: bytes = b"", fds: Sequence[int] = ()) -> bytes:
        self.send(self.packed(command, body), fds)
        reply = self.receive()
        assert (reply.number, reply.command) == (self.number, command)
        if reply.error:
            raise OSError(reply.error, os.strerror(reply.error))
        return reply.body

    def read(self, region: int, offset: int, count: int = 4) -> bytes:
        return self.call(READ, struct.pack("<QII", offset, region, count))[16:]

    def write(self, region: int, offset: int, data: bytes) -> None:
        self.call(WRITE, struct.pack("<QII", offset, region, len(data)) + data)

    def register(self, offset: int) -> int:
        return int.from_bytes(self.read(BAR0, offset), "little")

    def set(self, offset: int, value: int) -> None:
        self.write(BAR0, offset, value.to_bytes(4, "little"))

    def video(self, address: int, data: bytes) -> None:
        """Writes the card's memory by the window in BAR0."""
        while data:
            room = min(len(data), 0x10000 - address % 0x10000)
            self.set(0x1700, address >> 16)
            self.write(BAR0, 0x700000 + address % 0x10000, data[:room])
            address, data = address + room, data[room:]

    def video_read(self, address: int, count: int) -> bytes:
        self.set(0x1700, address >> 16)
        return self.read(BAR0, 0x700000 + address % 0x10000, count)


@dataclass
class Guest:
    """Memory that is shared as QEMU shares a guest's, at that bus address."""

    client: Client
    address: int
    size: int
    memory: mmap.mmap = field(init=False)

    def __post_init__(self) -> None:
        fd = os.memfd_create("guest")
        os.ftruncate(fd, self.size)
        self.memory = mmap.mmap(fd, self.size)
        body = struct.pack("<IIQQQ", 32, 3, 0, self.address, self.size)
        self.client.call(DMA_MAP, body, [fd])
        os.close(fd)

    def put(self, address: int, data: bytes) -> None:
        at = address - self.address
        self.memory[at : at + len(data)] = data

    def get(self, address: int, count: int) -> bytes:
        at = address - self.address
        return self.memory[at : at + count]

    def word(self, address: int) -> int:
        return int.from_bytes(self.get(address, 4), "little")


@dataclass
class Card:
    process: subprocess.Popen[str]
    client: Client
    report: Path
    memory_mib: int

    @property
    def reported(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.report.read_text().splitlines()]

    def ends(self) -> tuple[int, str]:
        """Its end of the socket is closed: the status and what it says."""
        self.client.socket.close()
        _, said = self.process.communicate(timeout=START_S)
        return self.process.returncode, said


@contextmanager
def running(folder: Path, memory_mib: int = 1024, *more: str) -> Iterator[Card]:
    path, report = folder / "card.sock", folder / "report.jsonl"
    command: list[str | Path] = [PROGRAM, "--socket", path, "--memory-mib", str(memory_mib)]
    command += ["--report", report, *more]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == f"listening at {path}\n"
        yield Card(process, Client(path), report, memory_mib)
    finally:
        process.kill()
        process.communicate()
