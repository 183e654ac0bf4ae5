"""Managed memory on the simulated card: what a process maps of its file of nvidia-uvm, seen by both."""

import ctypes
import mmap
import os
import struct
from collections.abc import Iterator

import pytest

from sim.cards import CardProcess
from tests.sim.card_channel import card_totals
from tests.sim.card_protocol import INVALID_DEVICE, OK, Client
from tests.sim.card_space import (
    COPY,
    COPY_CLASS,
    MIB,
    RELEASE,
    HardwareChannel,
    Space,
    Uvm,
    method,
    semaphore,
)
from tests.sim.conftest import A10, NewClient
from tests.support import rm_numbers as nv
from tests.support.waiting import until

RING, OTHER, POOL, SIZE = 0x10_0000_0000, 0x20_0000_0000, 0x2100_0000_0000, 4 * MIB
BASE = 0x2000_0000_0000
HOST = bytes.fromhex("a65e0f4ed7d47ba25047412c142a7773")
ASYNC = 1

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class Managed:
    """A range of the file at that address."""

    def __init__(self, fd: int, base: int, size: int) -> None:
        flags = mmap.MAP_SHARED | 0x100000  # MAP_FIXED_NOREPLACE
        assert libc.mmap(base, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, fd, base) == base
        self.base, self.end = base, base + size

    def read(self, at: int, size: int) -> bytes:
        return ctypes.string_at(self.base + at, size)

    def put(self, at: int, data: bytes) -> None:
        ctypes.memmove(self.base + at, data, len(data))

    def unmap(self, at: int = 0) -> None:
        """From there on."""
        if self.base + at < self.end:
            assert libc.munmap(self.base + at, self.end - self.base - at) == 0
            self.end = self.base + at


@pytest.fixture
def client(new_client: NewClient) -> Client:
    return new_client(A10, tgid=os.getpid())


@pytest.fixture
def vaspace(client: Client) -> Iterator[Space]:
    made = Space(client)
    yield made
    made.uvm.close()


def copied(to: int, from_: int, length: int) -> bytes:
    ends = from_ >> 32, from_ & 0xFFFFFFFF, to >> 32, to & 0xFFFFFFFF
    return b"".join(
        (method(COPY, 0x400, *ends), method(COPY, 0x418, length), method(COPY, 0x300, 2 | 3 << 7))
    )


def errors(card: CardProcess) -> int:
    engines = card_totals(card, A10)["engines"]
    return sum(group["errors"] for engine in engines for group in engine["groups"])


def test_host_and_card_see_the_same(card: CardProcess, vaspace: Space) -> None:
    channel = HardwareChannel(vaspace, RING)
    _, other = vaspace.put(OTHER, SIZE)
    managed = Managed(vaspace.uvm.file.fd, BASE, SIZE)
    sent = os.urandom(SIZE - MIB)
    managed.put(100, sent)
    channel.submit(
        method(COPY, 0, COPY_CLASS),
        copied(OTHER, BASE + 100, len(sent)),
        copied(BASE + 5, OTHER, 4096),
        semaphore(BASE + SIZE - 64, 7, RELEASE),
    )
    until(lambda: managed.read(SIZE - 64, 4) == struct.pack("<I", 7), "the semaphore is released")
    assert other[: len(sent)] == sent
    assert managed.read(5, 4096) == sent[:4096]
    assert errors(card) == 0
    managed.unmap()


def test_unmapped_memory_is_gone(card: CardProcess, vaspace: Space) -> None:
    channel = HardwareChannel(vaspace, RING)
    managed = Managed(vaspace.uvm.file.fd, BASE, SIZE)
    managed.unmap(SIZE // 2)
    channel.submit(semaphore(BASE, 1, RELEASE))
    until(lambda: managed.read(0, 4) == struct.pack("<I", 1), "the semaphore is released")
    channel.submit(semaphore(BASE + SIZE // 2, 1, RELEASE))
    until(lambda: errors(card) == 1, "the channel has failed")
    managed.unmap()


def test_mapping_of_another_file_is_no_managed_range(
    card: CardProcess, vaspace: Space, client: Client
) -> None:
    """Mapped of a file on which the channel's address space is not."""
    channel, uvm = HardwareChannel(vaspace, RING), Uvm(client)
    assert uvm.uvm_initialize() == OK
    managed = Managed(uvm.file.fd, BASE, SIZE)
    channel.submit(semaphore(BASE, 1, RELEASE))
    until(lambda: errors(card) == 1, "the channel has failed")
    managed.unmap()
    uvm.close()


def test_mapping_keeps_the_file(card: CardProcess, vaspace: Space, client: Client) -> None:
    vaspace.put(OTHER)
    held = card.account().cards[A10].used_bytes
    managed = Managed(vaspace.uvm.file.fd, BASE, SIZE)
    vaspace.uvm.close()
    client.close()
    assert card.account().cards[A10].used_bytes == held
    managed.unmap()
    until(lambda: card.account().cards[A10].used_bytes == 0, "the file is gone")


def policy(uvm: Uvm, cmd: int, base: int, size: int, name: bytes = b"") -> int:
    said = struct.pack("<QQ", base, size) + name
    at = {nv.UVM_SET_PREFERRED_LOCATION: 36, nv.UVM_SET_ACCESSED_BY: 32}.get(cmd, 16)
    return uvm.call(cmd, said.ljust(40 if name else 24, b"\0"), at)


def migrate(
    uvm: Uvm, base: int, size: int, to: bytes, flags: int = 0, semaphore: int = 0, payload: int = 0
) -> int:
    said = struct.pack("<QQ16sIxxxxQIi2QIxxxx", base, size, to, flags, semaphore, payload, -1, 0, 0, 0)
    return uvm.call(nv.UVM_MIGRATE, said, 72)


def test_range_commands_answer_by_their_targets(vaspace: Space) -> None:
    uvm, uuid = vaspace.uvm, vaspace.uuid
    managed = Managed(uvm.file.fd, BASE, SIZE)
    behind = Managed(uvm.file.fd, BASE + SIZE, SIZE)
    for to in (uuid, HOST):
        assert migrate(uvm, BASE, 2 * SIZE, to) == OK
        assert policy(uvm, nv.UVM_SET_PREFERRED_LOCATION, BASE, SIZE, to) == OK
        assert policy(uvm, nv.UVM_SET_ACCESSED_BY, BASE, SIZE, to) == OK
    assert policy(uvm, nv.UVM_UNSET_PREFERRED_LOCATION, BASE, SIZE) == OK
    assert policy(uvm, nv.UVM_VALIDATE_VA_RANGE, BASE, SIZE) == OK
    assert migrate(uvm, BASE, SIZE, bytes(16)) == INVALID_DEVICE
    assert policy(uvm, nv.UVM_SET_PREFERRED_LOCATION, BASE, SIZE, bytes(16)) == INVALID_DEVICE
    assert migrate(uvm, BASE, 3 * SIZE, uuid) == nv.NV_ERR_INVALID_ADDRESS
    assert migrate(uvm, BASE + 5, MIB, uuid) == nv.NV_ERR_INVALID_ADDRESS
    assert migrate(uvm, BASE, SIZE, uuid, 8) == nv.NV_ERR_INVALID_ARGUMENT
    assert migrate(uvm, BASE, SIZE, uuid, 0, POOL) == nv.NV_ERR_INVALID_ARGUMENT
    assert migrate(uvm, BASE, SIZE, uuid, ASYNC, POOL, 5) == nv.NV_ERR_INVALID_ADDRESS
    behind.unmap()
    assert migrate(uvm, BASE, 2 * SIZE, uuid) == nv.NV_ERR_INVALID_ADDRESS
    assert policy(uvm, nv.UVM_UNSET_PREFERRED_LOCATION, BASE, 2 * SIZE) == nv.NV_ERR_INVALID_ADDRESS
    assert policy(uvm, nv.UVM_VALIDATE_VA_RANGE, BASE + SIZE, SIZE) == nv.NV_ERR_INVALID_ADDRESS
    managed.unmap()


def test_asynchronous_migration_says_when_it_is_done(vaspace: Space) -> None:
    uvm = vaspace.uvm
    managed = Managed(uvm.file.fd, BASE, SIZE)
    pool = struct.pack("<QQ", POOL, MIB).ljust(9248, b"\0")
    assert uvm.call(nv.UVM_ALLOC_SEMAPHORE_POOL, pool, 9240) == OK
    semaphores = Managed(uvm.file.fd, POOL, MIB)
    assert migrate(uvm, BASE, SIZE, vaspace.uuid, ASYNC, POOL + 64, 9) == OK
    assert semaphores.read(64, 4) == struct.pack("<I", 9)
    managed.unmap()
    semaphores.unmap()
