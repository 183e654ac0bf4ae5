"""Managed memory on the card. It is brought there by UVM_MIGRATE, since an emulated engine makes no fault
that can be replayed.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct

from lab.claims import decides
from lab.tests.answers import REGISTERED
from lab.tests.nv import DEVICE, MIB, memory
from lab.tests.uvm import BASE, Registered
from tests.gpu import rm
from tests.support.rm_numbers import NV_ERR_NO_MEMORY, UVM_MIGRATE

MANAGED, PIECE, PAGE, FIXED = 512 * MIB, 64 * MIB, 4096, 0x10
STATUS_AT = 72


class Managed(Registered):
    """A managed range with a number in each of its pages."""

    def __init__(self) -> None:
        super().__init__()
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        both = mmap.PROT_READ | mmap.PROT_WRITE
        assert libc.mmap(BASE, MANAGED, both, mmap.MAP_SHARED | FIXED, self.uvm.fd, BASE) == BASE
        for number in range(0, MANAGED, PAGE):
            ctypes.c_uint64.from_address(BASE + number).value = number

    def to_the_card(self) -> int:
        params = struct.pack("<QQ16sI4xQIiQQI4x", BASE, MANAGED, self.uuid, 0, 0, 0, -1, 0, 0, 0)
        return self.uvm.call(UVM_MIGRATE, bytearray(params), STATUS_AT)

    def intact(self) -> bool:
        return all(
            ctypes.c_uint64.from_address(BASE + number).value == number for number in range(0, MANAGED, PAGE)
        )


@decides(
    "managed pages that UVM_MIGRATE brought to the card give way to allocations",
    "GET_PID_INFO counts managed memory on the card for no process",
    whatever=REGISTERED,
    limit_s=180,
)
def managed_pages_give_way() -> None:
    one = Managed()
    client = one.client
    before = client.free_bytes()
    assert one.to_the_card() == 0
    there = before - client.free_bytes()
    assert there >= MANAGED, "they are on the card"
    assert client.pid_info(os.getpid()) == (0, 0, 0)
    taken = 0
    while client.alloc(DEVICE, rm.MEMORY, memory(PIECE))[0] == 0:
        taken += PIECE
    assert client.alloc(DEVICE, rm.MEMORY, memory(PIECE))[0] == NV_ERR_NO_MEMORY
    assert taken > before - MANAGED, (before, there, taken)
    assert one.intact()
    one.close()
