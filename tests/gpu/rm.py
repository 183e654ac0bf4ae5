"""The part of the RM boundary that the experiments speak, with the layout of the newest known driver, and the
calls.

Source: rm_abi.h and interface.def of native_sched/nvidia/rm, restated for ctypes-free packing.
"""

import ctypes
import fcntl
import os
import struct
from dataclasses import dataclass

from tests.support.rm_numbers import (
    AMPERE_CHANNEL_GPFIFO_A,
    BLACKWELL_CHANNEL_GPFIFO_A,
    BLACKWELL_CHANNEL_GPFIFO_B,
    HOPPER_CHANNEL_GPFIFO_A,
    KEPLER_CHANNEL_GROUP_A,
    NV01_DEVICE_0,
    NV01_MEMORY_LOCAL_USER,
    NV01_MEMORY_SYSTEM,
    NV01_ROOT_CLIENT,
    NV20_SUBDEVICE_0,
    NV2080_CTRL_CMD_FB_GET_INFO_V2,
    NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS,
    NV2080_CTRL_CMD_GPU_GET_ENGINE_RUNLIST_PRI_BASE,
    NV_ERR_INVALID_ARGUMENT,
    NV_ERR_INVALID_CLASS,
    NV_ERR_NO_MEMORY,
    NV_ERR_NOT_SUPPORTED,
    NV_ESC_REGISTER_FD,
    NV_ESC_RM_ALLOC,
    NV_ESC_RM_ALLOC_MEMORY,
    NV_ESC_RM_CONTROL,
    NV_ESC_RM_DUP_OBJECT,
    NV_ESC_RM_FREE,
    NV_ESC_RM_MAP_MEMORY,
    NV_ESC_RM_SHARE,
    NVA06C_CTRL_CMD_GET_INFO,
    NVA06C_CTRL_CMD_GET_TIMESLICE,
    NVA06C_CTRL_CMD_GPFIFO_SCHEDULE,
    NVA06C_CTRL_CMD_SET_TIMESLICE,
    TURING_CHANNEL_GPFIFO_A,
    VOLTA_CHANNEL_GPFIFO_A,
)

ALLOC_MEMORY, FREE, CONTROL, ALLOC, DUP, SHARE, MAP, REGISTER_FD = (
    NV_ESC_RM_ALLOC_MEMORY,
    NV_ESC_RM_FREE,
    NV_ESC_RM_CONTROL,
    NV_ESC_RM_ALLOC,
    NV_ESC_RM_DUP_OBJECT,
    NV_ESC_RM_SHARE,
    NV_ESC_RM_MAP_MEMORY,
    NV_ESC_REGISTER_FD,
)
ROOT, MEMORY_HOST, MEMORY, DEVICE, SUBDEVICE, GROUP = (
    NV01_ROOT_CLIENT,
    NV01_MEMORY_SYSTEM,
    NV01_MEMORY_LOCAL_USER,
    NV01_DEVICE_0,
    NV20_SUBDEVICE_0,
    KEPLER_CHANNEL_GROUP_A,
)
CHANNELS = frozenset(
    {
        VOLTA_CHANNEL_GPFIFO_A,
        TURING_CHANNEL_GPFIFO_A,
        AMPERE_CHANNEL_GPFIFO_A,
        HOPPER_CHANNEL_GPFIFO_A,
        BLACKWELL_CHANNEL_GPFIFO_A,
        BLACKWELL_CHANNEL_GPFIFO_B,
    }
)
SCHEDULE, SET_TIMESLICE, GET_TIMESLICE, GROUP_INFO = (
    NVA06C_CTRL_CMD_GPFIFO_SCHEDULE,
    NVA06C_CTRL_CMD_SET_TIMESLICE,
    NVA06C_CTRL_CMD_GET_TIMESLICE,
    NVA06C_CTRL_CMD_GET_INFO,
)
DISABLE_CHANNELS, FB_INFO, RUNLIST_BASE = (
    NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS,
    NV2080_CTRL_CMD_FB_GET_INFO_V2,
    NV2080_CTRL_CMD_GPU_GET_ENGINE_RUNLIST_PRI_BASE,
)
OK, INVALID_ARGUMENT, INVALID_CLASS, NO_MEMORY, NOT_SUPPORTED = (
    0,
    NV_ERR_INVALID_ARGUMENT,
    NV_ERR_INVALID_CLASS,
    NV_ERR_NO_MEMORY,
    NV_ERR_NOT_SUPPORTED,
)
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
    """Makes the call on our descriptor: 0, or an errno; outer and params are then what the driver left
    there."""
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
