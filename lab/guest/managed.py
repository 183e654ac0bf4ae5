"""Managed memory by direct calls of the driver's."""

import ctypes
import mmap
import struct

from lab.guest.copies import Copies, word
from lab.tests.nv import MIB
from lab.tests.uvm import BASE, Registered
from tests.support.rm_numbers import UVM_MIGRATE

MANAGED, PAGE, BLOCK, FIXED = 512 * MIB, 4096, 2 * MIB, 0x10
MANAGED_BASE = 0x400000000
STATUS_AT = 72


class Managed:
    """A managed range of that file's, with a number in each of its pages. OSError where it is refused."""

    def __init__(self, on: Registered, base: int = BASE) -> None:
        self.on, self.base, self.written = on, base, set[int]()
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        both = mmap.PROT_READ | mmap.PROT_WRITE
        if libc.mmap(base, MANAGED, both, mmap.MAP_SHARED | FIXED, on.uvm.fd, base) != base:
            raise OSError(ctypes.get_errno(), "mmap")
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
