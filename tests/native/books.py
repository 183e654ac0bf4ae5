"""The tables of account/objects.h, core/ledger.h, journal/slab.h and journal/store.h, as C lays them out."""

from ctypes import (
    POINTER,
    Structure,
    c_bool,
    c_char,
    c_int,
    c_int32,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
    sizeof,
)


class RmObject(Structure):
    _fields_ = [
        *((name, c_uint32) for name in ("check", "client", "handle", "class_id", "card", "parent")),
        *(("memory_bytes", c_uint64), ("file", c_uint64), ("owner", c_int32 * 6)),
        *(("memory", c_uint64), ("timeslice_us", c_uint64), ("wanted", c_uint32)),
        *(("stopped", c_uint32), ("shared", c_uint32)),
        *((name, c_uint32) for name in ("first_child", "next_sibling", "prev_sibling", "hash_next")),
        *(("alias_next", c_uint32), ("alias_prev", c_uint32), ("bytes", c_uint64)),
    ]


class Store(Structure):
    _fields_ = [
        ("folder", c_int32),
        ("fd", c_int32),
        ("name", c_char * 40),
        ("at", c_void_p),
        ("map", c_void_p),
        ("map_bytes", c_size_t),
        ("reached_bytes", c_size_t),
        ("found", c_bool),
    ]


class Slab(Structure):
    _fields_ = [
        ("layout", c_void_p),
        ("store", POINTER(Store)),
        ("at", c_void_p),
        ("store_at", c_size_t),
        ("free_head", c_uint32),
        ("high", c_uint32),
    ]


class Objects(Structure):
    _fields_ = [
        ("slot", POINTER(RmObject)),
        ("bucket", POINTER(c_uint32)),
        ("live", c_uint32),
        ("hash_factor", c_uint64),
        ("last_memory", c_uint64),
        ("named_bytes", c_uint64 * 32),
        ("anonymous", c_uint32),
        ("slab", Slab),
    ]


class Layout(Structure):
    _fields_ = [("kind", c_uint32), ("record_bytes", c_uint32), ("max_bytes", c_size_t)]


# A tenant's records.
OBJECTS = Layout(2, sizeof(RmObject), 65537 * sizeof(RmObject))


class Ledger(Structure):
    _fields_ = [
        *((name, c_uint64) for name in ("cap", "used", "reserved", "peak")),
        ("card", c_void_p),
        ("kind", c_int),
        ("demanded", c_uint64),
        ("closed", c_bool),
        ("room", c_uint64),
    ]
