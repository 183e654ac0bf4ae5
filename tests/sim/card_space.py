"""An address space as NVIDIA's clients have one: registered with nvidia-uvm, and channels that execute in it.

Numbers of methods and fields are those of NVIDIA's class headers: clc56f.h, clc6b5.h, clc6c0.h, clc6c0qmd.h.
"""

import mmap
import os
import struct
import time
from pathlib import Path

from tests.sim.card_protocol import (
    CHANNEL_AMPERE,
    GRAPHICS_ENGINE,
    OK,
    TSG_SCHEDULE,
    USERMODE,
    UVM,
    VASPACE,
    Client,
    channel_params,
)
from tests.support import rm_numbers as nv

MIB = 1 << 20
CONTEXT_SHARE = nv.FERMI_CONTEXT_SHARE_A
UVM_MAP_EXTERNAL = nv.UVM_MAP_EXTERNAL_ALLOCATION
MAP_EXTERNAL_BYTES = 9264
RING_ENTRIES, USERD_AT, SEGMENTS_AT = 64, 0x1000, 0x10000
GP_GET, GP_PUT, DOORBELL = 0x88, 0x8C, 0x90
HOST, COMPUTE, COPY = 0, 1, 4
COMPUTE_CLASS, COPY_CLASS = nv.AMPERE_COMPUTE_B, nv.AMPERE_DMA_COPY_B
RELEASE, ACQUIRE_GEQ, WIDE, TIMED = 1, 3, 1 << 24, 1 << 25


class Uvm:
    """A file of nvidia-uvm."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.file = client.connection.open(UVM, tgid=client.tgid)

    def call(self, cmd: int, params: bytes, status_at: int) -> int:
        """RM status. By the client's own process."""
        said, _ = self.client.connection.ioctl(self.file.id, cmd, params, tgid=self.client.tgid)
        return int(struct.unpack_from("<I", said, status_at)[0])

    def uvm_initialize(self, flags: int = 0) -> int:
        return self.call(nv.UVM_INITIALIZE, struct.pack("<QII", flags, 0xDEAD, 0), 8)

    def register_gpu(self, uuid: bytes) -> int:
        return self.call(nv.UVM_REGISTER_GPU, uuid.ljust(40, b"\0"), 36)

    def unregister_gpu(self, uuid: bytes) -> int:
        return self.call(nv.UVM_UNREGISTER_GPU, uuid + struct.pack("<I", 0xDEAD), 16)

    def enable_peers(self, one: bytes, other: bytes) -> int:
        return self.call(nv.UVM_ENABLE_PEER_ACCESS, one + other + struct.pack("<I", 0xDEAD), 32)

    def disable_peers(self, one: bytes, other: bytes) -> int:
        return self.call(nv.UVM_DISABLE_PEER_ACCESS, one + other + struct.pack("<I", 0xDEAD), 32)

    def register_space(self, uuid: bytes, vaspace: int) -> int:
        params = uuid + struct.pack("<iIII", -1, self.client.root, vaspace, 0xDEAD)
        return self.call(nv.UVM_REGISTER_GPU_VASPACE, params, 28)

    def uvm_register_channel(self, uuid: bytes, channel: int) -> int:
        params = uuid + struct.pack("<iII", -1, self.client.root, channel)
        return self.call(nv.UVM_REGISTER_CHANNEL, params.ljust(56, b"\0"), 48)

    def unregister_channel(self, channel: int) -> int:
        params = bytes(16) + struct.pack("<III", self.client.root, channel, 0xDEAD)
        return self.call(nv.UVM_UNREGISTER_CHANNEL, params, 24)

    def create(self, base: int, length: int) -> int:
        return self.call(nv.UVM_CREATE_EXTERNAL_RANGE, struct.pack("<QQII", base, length, 0xDEAD, 0), 16)

    def map(self, uuid: bytes, base: int, length: int, memory: int, *, offset: int = 0) -> int:
        params = bytearray(MAP_EXTERNAL_BYTES)
        struct.pack_into("<QQQ16s", params, 0, base, length, offset, uuid)
        struct.pack_into("<QiIII", params, MAP_EXTERNAL_BYTES - 24, 1, -1, self.client.root, memory, 0xDEAD)
        return self.call(UVM_MAP_EXTERNAL, bytes(params), MAP_EXTERNAL_BYTES - 4)

    def unmap(self, uuid: bytes, base: int, length: int) -> int:
        return self.call(nv.UVM_UNMAP_EXTERNAL, struct.pack("<QQ16sII", base, length, uuid, 0xDEAD, 0), 32)

    def free(self, base: int, length: int) -> int:
        return self.call(nv.UVM_FREE, struct.pack("<QQII", base, length, 0xDEAD, 0), 16)

    def close(self) -> None:
        self.file.close()


def uuid_of(client: Client) -> bytes:
    """Of the card that its device is on, in binary."""
    status, params = client.control(
        nv.NV2080_CTRL_CMD_GPU_GET_GID_INFO, struct.pack("<III256s", 0, 2, 16, b"")
    )
    assert status == OK
    return params[12:28]


class Space:
    """An address space that is registered, with memory at addresses of it.

    uvm: the file on which it is, beside another card's.
    """

    def __init__(self, client: Client, uvm: Uvm | None = None) -> None:
        self.client, self.uuid = client, uuid_of(client)
        self.handle = client.made(client.device, VASPACE, bytes(48))
        self.uvm = uvm or Uvm(client)
        assert self.uvm.uvm_initialize() == OK
        assert self.uvm.register_gpu(self.uuid) == OK
        assert self.uvm.register_space(self.uuid, self.handle) == OK

    def put(self, base: int, size: int = MIB) -> tuple[int, mmap.mmap]:
        """(handle, bytes) of new memory that lies there."""
        status, handle = self.client.memory(size)
        assert status == OK
        assert self.uvm.create(base, size) == OK
        assert self.uvm.map(self.uuid, base, size, handle) == OK
        status, fd, at = self.client.map(handle, length=size)
        assert status == OK
        assert fd is not None
        try:
            return handle, mmap.mmap(fd, size, offset=at)
        finally:
            os.close(fd)


def method(subchannel: int, at: int, *data: int) -> bytes:
    """Data for methods from that one on."""
    return struct.pack(f"<{len(data) + 1}I", 1 << 29 | len(data) << 16 | subchannel << 13 | at >> 2, *data)


def semaphore(address: int, value: int, how: int) -> bytes:
    halves = address & 0xFFFFFFFF, address >> 32, value & 0xFFFFFFFF, value >> 32
    return method(HOST, 0x5C, *halves, how)


class HardwareChannel:
    """A channel with a ring and segments in memory at `base`, and a doorbell that is a page."""

    def __init__(self, vaspace: Space, base: int) -> None:
        client = vaspace.client
        self.vaspace, self.base = vaspace, base
        self.memory, self.bytes = vaspace.put(base)
        self.group = client.made(
            client.device, nv.KEPLER_CHANNEL_GROUP_A, struct.pack("<5I", 0, 0, 0, GRAPHICS_ENGINE, 0)
        )
        share = client.made(self.group, CONTEXT_SHARE, struct.pack("<3I", vaspace.handle, 0, 0))
        params = bytearray(channel_params(self.memory, userd=USERD_AT, ring=base, entries=RING_ENTRIES))
        struct.pack_into("<I", params, 24, share)
        self.handle = client.made(self.group, CHANNEL_AMPERE, bytes(params))
        assert client.control(TSG_SCHEDULE, bytes((1, 0, 0)), self.group)[0] == OK
        usermode = client.made(client.subdevice, USERMODE[2])
        status, fd, _ = client.map(usermode, device=client.subdevice, length=65536)
        assert status == OK
        assert fd is not None
        self.registers = mmap.mmap(fd, 65536)
        os.close(fd)
        self.put, self.free_at = 0, SEGMENTS_AT

    def submit(self, *methods: bytes, ring: bool = True) -> None:
        """One entry."""
        data = b"".join(methods)
        self.bytes[self.free_at : self.free_at + len(data)] = data
        entry = (self.base + self.free_at) | len(data) // 4 << 42
        self.free_at += len(data)
        self.enter(entry, ring=ring)

    def enter(self, entry: int, *, ring: bool = True) -> None:
        struct.pack_into("<Q", self.bytes, 8 * (self.put % RING_ENTRIES), entry)
        self.put += 1
        struct.pack_into("<I", self.bytes, USERD_AT + GP_PUT, self.put % RING_ENTRIES)
        if ring:
            struct.pack_into("<I", self.registers, DOORBELL, 1)

    @property
    def get(self) -> int:
        return int(struct.unpack_from("<I", self.bytes, USERD_AT + GP_GET)[0])


def word(page: mmap.mmap, at: int, form: str = "<Q") -> int:
    return int(struct.unpack_from(form, page, at)[0])


def wait(page: mmap.mmap, at: int, value: int, timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while word(page, at) != value:
        assert time.monotonic() < deadline, f"{word(page, at):#x} instead of {value:#x}"
        time.sleep(0.001)


def anonymous_shared(size: int) -> tuple[mmap.mmap, int]:
    """Pages of this process's own, and where they are."""
    pages = mmap.mmap(-1, size, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, flags, *_ = line.split()
        start, end = (int(part, 16) for part in span.split("-"))
        if "/dev/zero (deleted)" in line and end - start == size and flags[3] == "s":
            return pages, start
    raise AssertionError("it is not in the map")
