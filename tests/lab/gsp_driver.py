"""The driver's side of the GSP's queues, as far as the emulated card can tell: numbers of 550.163.01."""

import struct
from dataclasses import dataclass, field

from tests.lab.vfio_user import Client, Guest

FREE, DUP_OBJECT, UNLOADING, SET_PAGE_DIRECTORY, STATIC_INFO, UPDATE_BAR_PDE = 10, 21, 47, 54, 65, 70
CONTINUATION, CONTROL, ALLOC, INIT_DONE = 71, 76, 103, 0x1001
PAGE, COUNT, QUEUE_BYTES = 4096, 63, 0x40000
MESSAGE_BYTES = 16 * PAGE
SIGNATURE = 0x43505256
BASE, BYTES = 0x10_0000, 8 << 20
ARGUMENTS, SHARED = BASE, BASE + 0x10000
PAGES = 1 + 2 * QUEUE_BYTES // PAGE
COMMAND_AT, STATUS_AT = PAGE, PAGE + QUEUE_BYTES
GSP, SEC2, RING = 0x110000, 0x840000, 0x110C00
STARTCPU = 2
EMEM, FSP_QUEUE, FSP_ANSWERS, COT = 0x8F2AC0, 0x8F2C00, 0x8F2C80, 0x14


def folded(data: bytes) -> int:
    total = 0
    for (word,) in struct.iter_unpack("<Q", data + bytes(-len(data) % 8)):
        total ^= word
    return (total >> 32) ^ (total & 0xFFFFFFFF)


@dataclass
class Message:
    function: int
    sequence: int
    body: bytes


@dataclass
class Driver:
    client: Client
    guest: Guest = field(init=False)
    written: int = 0
    read: int = 0
    number: int = 0

    def __post_init__(self) -> None:
        self.guest = Guest(self.client, BASE, BYTES)
        self.guest.put(ARGUMENTS, struct.pack("<QQQBB", 0x4C4F47494E4954, 0x1000, 0x1000, 1, 1))
        self.guest.put(ARGUMENTS + 32, struct.pack("<QQQBB", 0x524D41524753, ARGUMENTS + PAGE, PAGE, 1, 1))
        self.guest.put(ARGUMENTS + PAGE, struct.pack("<QI4xQQ", SHARED, PAGES, COMMAND_AT, STATUS_AT))
        self.guest.put(SHARED, struct.pack(f"<{PAGES}Q", *(self._page(i) for i in range(PAGES))))
        self._put(COMMAND_AT, struct.pack("<8I", 0, QUEUE_BYTES, PAGE, COUNT, 0, 1, 32, PAGE))

    @staticmethod
    def _page(number: int) -> int:
        """They lie backwards: nothing may rest on their being one piece."""
        return SHARED + (PAGES - number) * PAGE if number else SHARED

    def _put(self, at: int, data: bytes) -> None:
        assert at % PAGE + len(data) <= PAGE
        self.guest.put(self._page(at // PAGE) + at % PAGE, data)

    def _get(self, at: int, count: int) -> bytes:
        assert at % PAGE + count <= PAGE
        return self.guest.get(self._page(at // PAGE) + at % PAGE, count)

    def boot(self) -> Message:
        """Booter starts the GSP; what it says first."""
        self.client.set(GSP + 0x40, ARGUMENTS)
        self.client.set(GSP + 0x44, 0)
        self.client.set(SEC2 + 0x40, 0x2000)
        self.client.set(SEC2 + 0x44, 0)
        self.client.set(SEC2 + 0x100, STARTCPU)
        return self.receive()

    def command_fsp(self, kind: int, payload: bytes) -> tuple[int, ...]:
        """A packet through FSP's EMEM, and its answer: six words."""
        packet = struct.pack("<II", 0xC0000000, kind << 24 | 0x10DE7E) + payload
        self.client.set(EMEM, 1 << 24)
        for (word,) in struct.iter_unpack("<I", packet):
            self.client.set(EMEM + 4, word)
        assert self.client.register(EMEM) & 0xFFFF == len(packet)
        self.client.set(FSP_QUEUE + 4, len(packet) - 4)
        self.client.set(FSP_QUEUE, 0)
        assert self.client.register(FSP_QUEUE) == self.client.register(FSP_QUEUE + 4)
        head, tail = self.client.register(FSP_ANSWERS), self.client.register(FSP_ANSWERS + 4)
        self.client.set(EMEM, 1 << 25)
        return tuple(self.client.register(EMEM + 4) for _ in range(head, tail + 4, 4))

    def boot_by_fsp(self) -> Message:
        """GSP-FMC's arguments name the GSP's; the command names GSP-FMC's."""
        self.guest.put(ARGUMENTS + 0x800 + 48, struct.pack("<Q", ARGUMENTS))
        cot = struct.pack("<HH", 1, 860).ljust(852, b"\0") + struct.pack("<Q", ARGUMENTS + 0x800)
        assert self.command_fsp(COT, cot)[3:] == (COT, 0)
        return self.receive()

    def _message(self, function: int, body: bytes, length: int) -> None:
        rpc = struct.pack("<8I", 0x03000000, SIGNATURE, 32 + length, function, 0, 0, self.number, 0) + body
        pages = -(-(48 + len(rpc)) // PAGE)
        data = (struct.pack("<32xIIII", 0, self.number, pages, 0) + rpc).ljust(pages * PAGE, b"\0")
        for i in range(pages):
            self._put(COMMAND_AT + PAGE + self.written * PAGE, data[i * PAGE : (i + 1) * PAGE])
            self.written = (self.written + 1) % COUNT
        self._put(COMMAND_AT + 16, struct.pack("<I", self.written))
        self.client.set(RING, 0)

    def send(self, function: int, body: bytes, length: int | None = None) -> None:
        room = MESSAGE_BYTES - 48 - 32
        self.number += 1
        self._message(function, body[:room], len(body[:room]) if length is None else length)
        for at in range(room, len(body), room):
            self._message(CONTINUATION, body[at : at + room], len(body[at : at + room]))

    def _one(self) -> Message:
        (written,) = struct.unpack("<I", self._get(STATUS_AT + 16, 4))
        assert written != self.read, "the GSP says nothing"
        first = self._get(STATUS_AT + PAGE + self.read * PAGE, PAGE)
        (pages,) = struct.unpack_from("<I", first, 40)
        data = b"".join(
            self._get(STATUS_AT + PAGE + (self.read + i) % COUNT * PAGE, PAGE) for i in range(pages)
        )
        self.read = (self.read + pages) % COUNT
        self._put(COMMAND_AT + 32, struct.pack("<I", self.read))
        _, signature, length, function, _, _, sequence, _ = struct.unpack_from("<8I", data, 48)
        assert signature == SIGNATURE
        assert folded(data[: 48 + length]) == 0
        return Message(function, sequence, data[48 + 32 : 48 + length])

    def receive(self) -> Message:
        return self._one()

    def receive_long(self, size: int) -> Message:
        first = self._one()
        while len(first.body) < size:
            more = self._one()
            assert more.function == CONTINUATION
            first.body += more.body
        return first

    def call(self, function: int, body: bytes) -> bytes:
        self.send(function, body)
        answer = self.receive()
        assert (answer.function, answer.sequence) == (function, self.number)
        return answer.body

    def control(self, client: int, handle: int, number: int, params: bytes) -> tuple[int, bytes]:
        body = struct.pack("<6I", client, handle, number, 0, len(params), 0) + params
        self.send(CONTROL, body)
        answer = self.receive_long(len(body)).body
        return struct.unpack_from("<6I", answer)[3], answer[24:]

    def alloc(self, client: int, parent: int, handle: int, class_id: int, params: bytes = b"") -> None:
        """As the driver sends it: the header's length leaves the parameters out."""
        body = struct.pack("<8I", client, parent, handle, class_id, 0, len(params), 0, 0) + params
        self.send(ALLOC, body, 32)
        assert struct.unpack_from("<5I", self.receive_long(len(body)).body)[4] == 0

    def free(self, client: int, handle: int) -> None:
        self.call(FREE, struct.pack("<4I", client, 0, handle, 0))
