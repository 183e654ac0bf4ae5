"""Numbers of the resource manager's interface, and parameters of its calls."""

from __future__ import annotations

import struct

CTL, CARD, UVM = 0, 1, 2
MIB = 1 << 20
FREE, CONTROL, ALLOC, SHARE, MAP = 0x29, 0x2A, 0x2B, 0x35, 0x4E
ALLOC_OS_EVENT, FREE_OS_EVENT = 206, 207
REGISTER_FD, UVM_INITIALIZE, UVM_MIGRATE, UVM_POPULATE_PAGEABLE = 201, 0x30000001, 51, 71
UVM_MAP_EXTERNAL, UVM_FREE, UVM_UNMAP_EXTERNAL = 33, 34, 66
UVM_REGISTER_GPU_VASPACE, UVM_REGISTER_CHANNEL, UVM_UNREGISTER_CHANNEL = 25, 27, 28
ROOT, MEMORY_SYSTEM, MEMORY, DEVICE, SUBDEVICE, GROUP = 0x41, 0x3E, 0x40, 0x80, 0x2080, 0xA06C
EVENT_OS, HOPPER = 0x79, 0xC86F
ADDRESS_SPACE, VIRTUAL = 0x90F1, 0x50A0
# What the driver takes by itself: for an address space; for a group, its context and its channels' instance blocks.
SPACE_MIB = 1 / 16
CARD_CONTEXT_MIB = 240
CONTEXT_MIB = CARD_CONTEXT_MIB + 9 / 16
MAP_FIXED = 0x10


def cmd(number: int, size: int) -> int:
    return 3 << 30 | size << 16 | ord("F") << 8 | number


def alloc_struct(client: int, parent: int, handle: int, class_id: int, params: int = 0) -> bytes:
    """NVOS64."""
    return struct.pack("IIIIQQIIII", client, parent, handle, class_id, 0, 0, params, 0, 0, 0)


def memory(size: int) -> bytes:
    """Parameters of class 0x40 and 0x3e."""
    params = bytearray(128)
    struct.pack_into("Q", params, 0x40, size)
    return bytes(params)


def group(engine_type: int = 1) -> bytes:
    return struct.pack("5I", 0, 0, 0, engine_type, 0)


def channel(userd: int) -> bytes:
    params = bytearray(368)
    struct.pack_into("QII", params, 8, 4096, 16, 0)
    struct.pack_into("I", params, 0x20, userd)
    return bytes(params)
