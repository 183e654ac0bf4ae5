"""The part of the RM boundary that the experiments speak, with the layout of the newest known driver, and the calls.

Source: native_sched/boundary/rm_abi.h and native_sched/rm/interface.def, restated for ctypes-free packing.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
from dataclasses import dataclass

ALLOC_MEMORY, FREE, CONTROL, ALLOC, DUP, SHARE, VID_HEAP, MAP, REGISTER_FD = (
    0x27, 0x29, 0x2A, 0x2B, 0x34, 0x35, 0x4A, 0x4E, 201,
)  # fmt: skip
ROOT, MEMORY_HOST, MEMORY, DEVICE, SUBDEVICE, GROUP = 0x41, 0x3E, 0x40, 0x80, 0x2080, 0xA06C
CHANNELS = frozenset({0xC36F, 0xC46F, 0xC56F, 0xC86F, 0xC96F, 0xCA6F})
SCHEDULE, SET_TIMESLICE, GET_TIMESLICE, PREEMPT, GROUP_INFO = (
    0xA06C0101, 0xA06C0103, 0xA06C0104, 0xA06C0105, 0xA06C0106,
)  # fmt: skip
DISABLE_CHANNELS, FB_INFO, RUNLIST_BASE, ID_INFO = 0x2080110B, 0x20801303, 0x20800179, 0x202
OK, INVALID_ARGUMENT, INVALID_CLASS, NO_MEMORY, NOT_SUPPORTED = 0, 0x1F, 0x22, 0x51, 0x56
PRIVILEGED_CHANNEL = 1 << 5
GP_GET, GP_PUT = 0x88, 0x8C
GRAPHICS = 1
# What the driver takes for the parameters of a class, whatever size the caller names.
CLASS_BYTES = {MEMORY: 128, MEMORY_HOST: 128, DEVICE: 56, SUBDEVICE: 4, GROUP: 20} | dict.fromkeys(
    CHANNELS, 368
)


def command(number: int, size: int) -> int:
    return 3 << 30 | size << 16 | ord("F") << 8 | number


class RmError(Exception):
    """RM's status, or an errno where ioctl() itself failed (negative)."""

    def __init__(self, what: str, status: int) -> None:
        super().__init__(f"{what}: {f'errno {-status}' if status < 0 else f'status {status:#x}'}")
        self.status = status


@dataclass
class Call:
    """An ioctl with copied arguments. at: where in outer the pointer to params goes, -1: nowhere."""

    number: int
    outer: bytearray
    params: bytearray
    at: int = 0x10

    @property
    def cmd(self) -> int:
        return command(self.number, len(self.outer))

    def i32(self, offset: int) -> int:
        value: int = struct.unpack_from("<i", self.outer, offset)[0]
        return value

    def u32(self, offset: int) -> int:
        value: int = struct.unpack_from("<I", self.outer, offset)[0]
        return value


def on_file(fd: int, call: Call) -> int:
    """Makes the call on our descriptor: 0, or an errno; outer and params are then what the driver left there."""
    outer = bytearray(call.outer)
    params = (ctypes.c_ubyte * max(1, len(call.params))).from_buffer(call.params or bytearray(1))
    if call.at >= 0:
        struct.pack_into("<Q", outer, call.at, ctypes.addressof(params) if call.params else 0)
    try:
        fcntl.ioctl(fd, call.cmd, outer, True)
    except OSError as error:
        return error.errno or 1
    finally:
        del params
    if call.at >= 0:
        outer[call.at : call.at + 8] = call.outer[call.at : call.at + 8]
    call.outer[:] = outer
    return 0


def control(client: int, thing: int, cmd: int, params: bytes) -> Call:
    return Call(
        CONTROL,
        bytearray(struct.pack("<IIIIQII", client, thing, cmd, 0, 0, len(params), 0)),
        bytearray(params),
    )


def alloc(client: int, parent: int, handle: int, class_id: int, params: bytes = b"") -> Call:
    outer = struct.pack("<IIIIQQIIII", client, parent, handle, class_id, 0, 0, len(params), 0, 0, 0)
    return Call(ALLOC, bytearray(outer), bytearray(params))


def disable(client: int, channels: list[int], off: bool) -> bytes:
    params = bytearray(536)
    struct.pack_into("<B3xI", params, 0, off, len(channels))
    for i, channel in enumerate(channels[:64]):
        struct.pack_into("<I", params, 0x18 + 4 * i, client)
        struct.pack_into("<I", params, 0x118 + 4 * i, channel)
    return bytes(params)


def node(name: str) -> int:
    return os.open(f"/dev/{name}", os.O_RDWR | os.O_CLOEXEC)
