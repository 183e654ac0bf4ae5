"""Memory that gives way, as engine.h has it."""

from ctypes import Structure, c_uint32, c_uint64
from enum import IntEnum


class CardMemory(Structure):
    """struct mgpu_card_memory: one card's memory over all tenants, and the calls that wait for some of it."""

    _fields_ = [
        ("total_bytes", c_uint64),
        ("taken_bytes", c_uint64),
        ("used_bytes", c_uint64),
        ("unseen_bytes", c_uint64),
        ("reclaimable_bytes", c_uint64),
        ("demanded_bytes", c_uint64),
        ("demands", c_uint32),
        ("restorations", c_uint32),
    ]


class MemoryKind(IntEnum):
    """enum mgpu_memory: what a tenant's memory is to the others on its cards."""

    UNSHARED = 0
    ONLINE = 1
    KEPT = 2
    RECLAIMABLE = 3
