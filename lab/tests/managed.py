"""Managed memory on the card, brought there by UVM_MIGRATE and by faults."""

import ctypes
import mmap
import os
import struct
from collections.abc import Callable

from lab.claims import decides
from lab.guest.copies import Copies, word
from lab.tests.answers import REGISTERED, WORKING
from lab.tests.nv import DEVICE, MIB, Client, memory
from lab.tests.uvm import BASE, Registered
from tests.gpu import rm
from tests.support.rm_numbers import NV_ERR_NO_MEMORY, UVM_MIGRATE

MANAGED, PIECE, PAGE, BLOCK, FIXED = 512 * MIB, 64 * MIB, 4096, 2 * MIB, 0x10
MANAGED_BASE = 0x400000000
STATUS_AT = 72


class Managed:
    """A managed range of that file's, with a number in each of its pages."""

    def __init__(self, on: Registered, base: int = BASE) -> None:
        self.on, self.base, self.written = on, base, set[int]()
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        both = mmap.PROT_READ | mmap.PROT_WRITE
        assert libc.mmap(base, MANAGED, both, mmap.MAP_SHARED | FIXED, on.uvm.fd, base) == base
        for number in range(0, MANAGED, PAGE):
            ctypes.c_uint64.from_address(base + number).value = number

    def migrate(self) -> None:
        params = struct.pack("<QQ16sI4xQIiQQI4x", self.base, MANAGED, self.on.uuid, 0, 0, 0, -1, 0, 0, 0)
        assert self.on.uvm.call(UVM_MIGRATE, bytearray(params), STATUS_AT) == 0

    def write_by(self, engine: Copies) -> None:
        """In each block of 2 MiB, which is the least that nvidia-uvm takes of the card."""
        for first in range(0, MANAGED, 16 * BLOCK):
            blocks = range(first, first + 16 * BLOCK, BLOCK)
            assert engine.do(b"".join(word(self.base + number, number + 1) for number in blocks))
            self.written.update(blocks)

    def intact(self) -> bool:
        return all(
            ctypes.c_uint64.from_address(self.base + number).value == number + (number in self.written)
            for number in range(0, MANAGED, PAGE)
        )


def give_way(client: Client, one: Managed, bring: Callable[[], None]) -> None:
    before, counted = client.free_bytes(), client.pid_info(os.getpid())
    bring()
    there = before - client.free_bytes()
    assert there >= MANAGED, f"{there} bytes are on the card"
    assert client.pid_info(os.getpid()) == counted
    taken = 0
    while client.alloc(DEVICE, rm.MEMORY, memory(PIECE))[0] == 0:
        taken += PIECE
    assert client.alloc(DEVICE, rm.MEMORY, memory(PIECE))[0] == NV_ERR_NO_MEMORY
    assert taken > before - MANAGED, (before, there, taken)
    assert one.intact()


@decides(
    "managed pages that UVM_MIGRATE brought to the card give way to allocations",
    "GET_PID_INFO counts managed memory on the card for no process",
    whatever=REGISTERED,
    limit_s=180,
)
def managed_pages_give_way() -> None:
    on = Registered()
    one = Managed(on)
    give_way(on.client, one, one.migrate)
    on.close()


@decides("pages that faults brought in give way as migrated ones do", whatever=WORKING, limit_s=180)
def faulted_pages_give_way() -> None:
    """A fault is as clc369.h has it; nvidia-uvm brings the page, and has the write done again."""
    engine = Copies(Client())
    one = Managed(engine.work.on, base=MANAGED_BASE)
    give_way(engine.work.client, one, lambda: one.write_by(engine))
    engine.work.on.close()
