"""Speaks the simulated card's protocol, as the arbiter does, and makes RM objects over it."""

import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.support import rm_interface

CTL, CARD, UVM = 0, 1, 2
OPEN, IOCTL, SUBSCRIBE, USERD, STATUS = 1, 2, 3, 4, 5
EVENT_SUBSCRIBED, EVENT_FILE_GONE = 0, 1
REQUEST = struct.Struct("<IIIIQQiIII")
REPLY = struct.Struct("<iIIIQQ")
EVENT = struct.Struct("<IIQ")
PACKET_MAX = 65536

_NUMBER = rm_interface.numbers()
ALLOC, FREE, CONTROL = (_NUMBER[f"NV_ESC_RM_{name}"] for name in ("ALLOC", "FREE", "CONTROL"))
MAP_MEMORY, UNMAP_MEMORY = _NUMBER["NV_ESC_RM_MAP_MEMORY"], _NUMBER["NV_ESC_RM_UNMAP_MEMORY"]
CARD_INFO, REGISTER_FD = _NUMBER["NV_ESC_CARD_INFO"], _NUMBER["NV_ESC_REGISTER_FD"]
CHECK_VERSION, ATTACH_GPUS = _NUMBER["NV_ESC_CHECK_VERSION_STR"], _NUMBER["NV_ESC_ATTACH_GPUS_TO_FD"]
SYS_PARAMS, WAIT_OPEN = _NUMBER["NV_ESC_SYS_PARAMS"], _NUMBER["NV_ESC_WAIT_OPEN_COMPLETE"]
ROOT_CLIENT, DEVICE, SUBDEVICE = (
    _NUMBER[name] for name in ("NV01_ROOT_CLIENT", "NV01_DEVICE_0", "NV20_SUBDEVICE_0")
)
MEMORY, SYSTEM_MEMORY = _NUMBER["NV01_MEMORY_LOCAL_USER"], _NUMBER["NV01_MEMORY_SYSTEM"]
VASPACE, CHANNEL_GROUP = _NUMBER["FERMI_VASPACE_A"], _NUMBER["KEPLER_CHANNEL_GROUP_A"]
USERMODE = tuple(
    _NUMBER[f"{chip}_USERMODE_A"] for chip in ("VOLTA", "TURING", "AMPERE", "HOPPER", "BLACKWELL")
)
CHANNEL_VOLTA, CHANNEL_AMPERE = _NUMBER["VOLTA_CHANNEL_GPFIFO_A"], _NUMBER["AMPERE_CHANNEL_GPFIFO_A"]
GRAPHICS_ENGINE, COPY_ENGINE = 0x1, 0x9
TSG_SCHEDULE, CHANNEL_SCHEDULE = (_NUMBER[f"NV{of}_CTRL_CMD_GPFIFO_SCHEDULE"] for of in ("A06C", "A06F"))
DISABLE_CHANNELS = _NUMBER["NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS"]
SET_TIMESLICE, GET_TIMESLICE, PREEMPT, TSG_INFO = (
    _NUMBER[f"NVA06C_CTRL_CMD_{name}"] for name in ("SET_TIMESLICE", "GET_TIMESLICE", "PREEMPT", "GET_INFO")
)

OK, DUPLICATE = _NUMBER["NV_OK"], _NUMBER["NV_ERR_INSERT_DUPLICATE_NAME"]
INVALID_ARGUMENT, INVALID_CLASS, INVALID_CLIENT = (
    _NUMBER[f"NV_ERR_INVALID_{what}"] for what in ("ARGUMENT", "CLASS", "CLIENT")
)
INVALID_HANDLE, INVALID_PARENT = (
    _NUMBER["NV_ERR_INVALID_OBJECT_HANDLE"],
    _NUMBER["NV_ERR_INVALID_OBJECT_PARENT"],
)
INVALID_DEVICE, INVALID_PARAMS = _NUMBER["NV_ERR_INVALID_DEVICE"], _NUMBER["NV_ERR_INVALID_PARAM_STRUCT"]
INVALID_OWNER = _NUMBER["NV_ERR_INVALID_OWNER"]
INSUFFICIENT_RESOURCES = _NUMBER["NV_ERR_INSUFFICIENT_RESOURCES"]
NO_MEMORY, NOT_SUPPORTED = _NUMBER["NV_ERR_NO_MEMORY"], _NUMBER["NV_ERR_NOT_SUPPORTED"]
NOT_FOUND = _NUMBER["NV_ERR_OBJECT_NOT_FOUND"]

ALLOC_STRUCT = struct.Struct("<IIIIQQIIII")
FREE_STRUCT = struct.Struct("<IIII")
CONTROL_STRUCT = struct.Struct("<IIIIQII")
MEMORY_STRUCT = struct.Struct("<12I7Q6I")
DEVICE_STRUCT = struct.Struct("<6I3QII")
CHANNEL_STRUCT = struct.Struct("<IIQIIII8I8QI236x")
MAP_STRUCT = struct.Struct("<4I3QIIiI")
UNMAP_STRUCT = struct.Struct("<4IQII")


def rm_cmd(nr: int, size: int) -> int:
    """_IOWR('F', nr, size)."""
    return 3 << 30 | size << 16 | ord("F") << 8 | nr


@dataclass
class File:
    """An open file of the card: its id, the descriptor that keeps it open, the descriptor's inode as told."""

    id: int
    fd: int
    ino: int

    def close(self) -> None:
        """Once only: the number may be another file's by then."""
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1


@dataclass(frozen=True, kw_only=True)
class Registers:
    """runlists: the base of each, and the engines that are on it, as RM numbers them."""

    architecture: int
    implementation: int
    runlists: list[tuple[int, set[int]]]


class Connection:
    """One connection to card.sock, with the files that are opened by it. Not for use from two threads at
    once.
    """

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(60)
        self.socket.connect(os.fspath(path))
        self._files: list[File] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()
        for file in self._files:
            file.close()

    def open(self, node: int = CTL, minor: int = 0, tgid: int = 1) -> File:
        """OSError with the errno that open()'s replacement fails with."""
        _, fd, file, ino = self._ask(REQUEST.pack(OPEN, node, minor, 0, 0, 0, tgid, 0, 0, 0))
        assert fd is not None
        self._files.append(made := File(file, fd, ino))
        return made

    def _ask(self, packet: bytes) -> tuple[tuple[bytes, bytes], int | None, int, int]:
        """((outer, params), descriptor, file, inode)."""
        self.socket.send(packet)
        data, fds, _, _ = socket.recv_fds(self.socket, PACKET_MAX, 1)
        error, outer_bytes, params_bytes, _, file, ino = REPLY.unpack_from(data)
        if error:
            raise OSError(error, os.strerror(error))
        assert len(data) == REPLY.size + outer_bytes + params_bytes
        parts = data[REPLY.size : REPLY.size + outer_bytes], data[REPLY.size + outer_bytes :]
        return parts, fds[0] if fds else None, file, ino

    def ioctl(
        self, file: int, cmd: int, outer: bytes, params: bytes = b"", *, tgid: int = 1, aux: int = 0
    ) -> tuple[bytes, bytes]:
        """(outer, params) as they come back. OSError with the errno that ioctl() fails with."""
        head = REQUEST.pack(IOCTL, 0, 0, cmd, file, aux, tgid, len(outer), len(params), 0)
        parts, fd, _, _ = self._ask(head + outer + params)
        assert fd is None
        return parts

    def map(
        self,
        file: int,
        root: int,
        device: int,
        memory: int,
        through: int,
        *,
        offset: int = 0,
        length: int = 4096,
        tgid: int = 1,
    ) -> tuple[int, int | None, int]:
        """(RM status, descriptor to map, offset to map it at). through: the file that is to be mapped."""
        outer = MAP_STRUCT.pack(root, device, memory, 0, offset, length, 0xDEAD, 0xDEAD, 0, -1, 0)
        head = REQUEST.pack(
            IOCTL, 0, 0, rm_cmd(MAP_MEMORY, len(outer)), file, through, tgid, len(outer), 0, 0
        )
        (outer, _), fd, _, _ = self._ask(head + outer)
        fields = MAP_STRUCT.unpack(outer)
        return fields[7], fd, fields[6]

    def userd(self, file: int, client: int, channel: int) -> tuple[int, int]:
        """(read-only descriptor, offset of the channel's USERD). OSError when there is no such channel."""
        payload = struct.pack("<II", client, channel)
        head = REQUEST.pack(USERD, 0, 0, 0, file, 0, 1, len(payload), 0, 0)
        (offset, _), fd, _, _ = self._ask(head + payload)
        assert fd is not None
        return fd, int.from_bytes(offset, "little")

    def registers(self, minor: int = 0) -> tuple[int, Registers]:
        """Read-only descriptor of the card's registers, and what RM says of them."""
        (said, _), fd, _, _ = self._ask(REQUEST.pack(STATUS, 0, minor, 0, 0, 0, 1, 0, 0, 0))
        assert fd is not None
        architecture, implementation, count, _ = struct.unpack_from("<4I", said)
        runlists = [struct.unpack_from("<QI", said, 16 + 16 * i) for i in range(count)]
        return fd, Registers(
            architecture=architecture,
            implementation=implementation,
            runlists=[
                (base, {bit for bit in range(64) if engines >> bit & 1}) for engines, base in runlists
            ],
        )

    def escape(self, file: int, nr: int, outer: bytes, *, aux: int = 0) -> bytes:
        return self.ioctl(file, rm_cmd(nr, len(outer)), outer, aux=aux)[0]

    def alloc(
        self,
        file: int,
        root: int,
        parent: int,
        handle: int,
        class_id: int,
        params: bytes = b"",
        tgid: int = 1,
    ) -> tuple[int, int, bytes]:
        """(RM status, handle, params)."""
        outer = ALLOC_STRUCT.pack(root, parent, handle, class_id, 0, 0, len(params), 0, 0xDEAD, 0)
        outer, params = self.ioctl(file, rm_cmd(ALLOC, len(outer)), outer, params, tgid=tgid)
        fields = ALLOC_STRUCT.unpack(outer)
        return fields[8], fields[2], params

    def free(self, file: int, root: int, handle: int) -> int:
        """RM status."""
        outer = self.escape(file, FREE, FREE_STRUCT.pack(root, 0, handle, 0xDEAD))
        return int(FREE_STRUCT.unpack(outer)[3])

    def control(self, file: int, client: int, handle: int, cmd: int, params: bytes) -> tuple[int, bytes]:
        """(RM status, params)."""
        outer = CONTROL_STRUCT.pack(client, handle, cmd, 0, 0, len(params), 0xDEAD)
        outer, params = self.ioctl(file, rm_cmd(CONTROL, len(outer)), outer, params)
        return CONTROL_STRUCT.unpack(outer)[6], params


def heap_bytes(asked: int) -> int:
    """Of video memory without a page size: pages of 2 MiB from there on, of 64 KiB below."""
    page_bytes = 2 << 20 if asked >= 2 << 20 else 64 << 10
    return -(-asked // page_bytes) * page_bytes


def memory_params(size: int, *, flags: int = 0, attr: int = 0, owner: int = 1) -> bytes:
    fields = [0] * 25
    fields[0], fields[2], fields[6], fields[14] = owner, flags, attr, size
    return MEMORY_STRUCT.pack(*fields)


def host_params(size: int, *, flags: int = 0) -> bytes:
    return memory_params(size, flags=flags, attr=1 << 25)


def group_params(engine: int = 1) -> bytes:
    return struct.pack("<5I", 0, 0, 0, engine, 0)


def channel_params(memory: int, *, userd: int, ring: int, entries: int) -> bytes:
    return CHANNEL_STRUCT.pack(0, 0, ring, entries, 0, 0, 0, memory, *[0] * 7, userd, *[0] * 7, 0)


def device_params(instance: int) -> bytes:
    return DEVICE_STRUCT.pack(instance, *[0] * 10)


class Client:
    """A control file with a root client, and a device and subdevice on one card."""

    def __init__(self, connection: Connection, card: int = 0, *, tgid: int = 1) -> None:
        self.connection, self.card, self.tgid = connection, card, tgid
        self.hosts: set[int] = set()
        self.file = connection.open(CTL, tgid=tgid)
        self.root = self.made(0, ROOT_CLIENT)
        self.device = self.made(self.root, DEVICE, device_params(card))
        self.subdevice = self.made(self.device, SUBDEVICE, bytes(4))

    root = 0
    bell = -1  # a doorbell's descriptor, for who needs one

    def alloc(self, parent: int, class_id: int, params: bytes = b"", handle: int = 0) -> tuple[int, int]:
        """(RM status, handle)."""
        status, handle, _ = self.connection.alloc(
            self.file.id, self.root, parent, handle, class_id, params, self.tgid
        )
        if class_id == SYSTEM_MEMORY:
            self.hosts.add(handle)
        return status, handle

    def made(self, parent: int, class_id: int, params: bytes = b"") -> int:
        status, handle = self.alloc(parent, class_id, params)
        assert status == OK
        return handle

    def memory(self, size: int) -> tuple[int, int]:
        return self.alloc(self.device, MEMORY, memory_params(size))

    def system_memory(self, size: int) -> tuple[int, int]:
        return self.alloc(self.device, SYSTEM_MEMORY, host_params(size))

    def map(
        self,
        memory: int,
        *,
        device: int | None = None,
        offset: int = 0,
        length: int = 4096,
        through: int = 0,
    ) -> tuple[int, int | None, int]:
        """(RM status, descriptor to map, offset to map it at). through: a file; by default one that fits."""
        above = self.device if device is None else device
        if not through:
            kind = (CTL, 0) if memory in self.hosts else (CARD, self.card)
            through = self.connection.open(*kind).id
        return self.connection.map(
            self.file.id, self.root, above, memory, through, offset=offset, length=length, tgid=self.tgid
        )

    def group(self, engine: int = 1) -> int:
        return self.made(self.device, CHANNEL_GROUP, group_params(engine))

    def free(self, handle: int) -> int:
        return self.connection.free(self.file.id, self.root, handle)

    def control(self, cmd: int, params: bytes, handle: int | None = None) -> tuple[int, bytes]:
        target = self.subdevice if handle is None else handle
        return self.connection.control(self.file.id, self.root, target, cmd, params)

    def close(self) -> None:
        self.file.close()
        if self.bell >= 0:
            os.close(self.bell)
        self.bell = -1
