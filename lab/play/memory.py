"""Memory whose address the kernel is told."""

import ctypes

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int64,
)
libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
FAILED = ctypes.c_void_p(-1).value


class Memory:
    def __init__(self, size: int) -> None:
        self.bytes = bytearray(size)
        self._pinned = (ctypes.c_char * size).from_buffer(self.bytes) if size else None
        self.address = ctypes.addressof(self._pinned) if self._pinned is not None else 0
