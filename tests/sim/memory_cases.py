"""What copies carry and when, run as `python memory_cases.py CASE` where ioctls reach a card. Prints JSON."""

import ctypes
import json
import sys
import threading
import time
from ctypes import byref, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p
from pathlib import Path
from typing import Any

from tests.sim.cuda_program import MIB, NON_BLOCKING, NOT_READY, PER_THREAD, Cuda, check, longer

SMALL = 4096
HOST_LOCATION = 2


class Location(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = [("type", c_int), ("id", c_int)]


def byte_at(address: c_void_p) -> c_ubyte:
    return c_ubyte.from_address(address.value or 0)


def read_on_time() -> Any:
    """Pageable memory is read before the call returns, pinned memory when the stream has come to the copy.

    And before it has come there, nothing is written.
    """
    c = Cuda()
    stream, idle = c.stream(NON_BLOCKING), c.stream(NON_BLOCKING)
    there, pinned, back = c.memory(2 * SMALL), c.pinned(SMALL), c.pinned(2 * SMALL)

    def attempt(ms: float) -> tuple[list[int], list[int], int]:
        own = ctypes.create_string_buffer(b"\1" * SMALL, SMALL)
        byte_at(pinned).value, byte_at(back).value = 1, 9
        c.spin(ms, stream)
        check(c.cu.cuMemcpyHtoDAsync_v2(there, own, c_size_t(SMALL), stream))
        pending = c.cu.cuStreamQuery(stream)
        check(c.cu.cuMemcpyHtoDAsync_v2(c_uint64(there.value + SMALL), pinned, c_size_t(SMALL), stream))
        check(c.cu.cuMemcpyDtoHAsync_v2(back, there, c_size_t(2 * SMALL), stream))
        own[0], byte_at(pinned).value = b"\2", 2
        check(c.cu.cuStreamSynchronize(idle))
        early = [byte_at(back).value]
        check(c.cu.cuStreamSynchronize(stream))
        late = [c_ubyte.from_address((back.value or 0) + at).value for at in (0, SMALL)]
        return early, late, pending

    return longer(attempt, lambda seen: seen[2] == NOT_READY)


def whoever_looks() -> Any:
    """An event that is done, a stream that is, and freed memory: after each the bytes are there."""
    c = Cuda()
    stream, there, back, event = c.stream(NON_BLOCKING), c.memory(SMALL), c.pinned(SMALL), c.event()
    seen: list[int] = []

    def copy(value: int) -> None:
        check(c.cu.cuMemsetD8Async(there, value, c_size_t(SMALL), stream))
        check(c.cu.cuMemcpyDtoHAsync_v2(back, there, c_size_t(SMALL), stream))

    looks: list[tuple[Any, Any]] = [
        (c.cu.cuEventQuery, event),
        (c.cu.cuEventSynchronize, event),
        (c.cu.cuStreamQuery, stream),
        (c.cu.cuStreamSynchronize, stream),
        (c.cu.cuCtxSynchronize_v2, c.context),
        (c.cu.cuMemFree_v2, there),
    ]
    for look, named in looks:
        copy(len(seen) + 1)
        check(c.cu.cuEventRecord(event, stream))
        while look(named) == NOT_READY:
            pass
        seen.append(byte_at(back).value)
    return seen


def far_ahead() -> Any:
    """A thousand copies that are not waited for, each of what the one before left."""
    c = Cuda()
    stream, there, back = c.stream(NON_BLOCKING), c.memory(1001), c.pinned(1001)
    check(c.cu.cuMemsetD8Async(there, 7, c_size_t(1), stream))
    for at in range(1000):
        to, source = c_uint64(there.value + at + 1), c_uint64(there.value + at)
        check(c.cu.cuMemcpyDtoDAsync_v2(to, source, c_size_t(1), stream))
    check(c.cu.cuMemcpyDtoHAsync_v2(back, there, c_size_t(1001), stream))
    check(c.cu.cuStreamSynchronize(stream))
    return ctypes.string_at(back.value or 0, 1001) == b"\7" * 1001


def across_streams() -> Any:
    """A stream that waits for another's event copies what that one copied, whichever is looked at first."""
    c = Cuda()
    one, two, there, back = c.stream(NON_BLOCKING), c.stream(NON_BLOCKING), c.memory(1), c.pinned(1)
    seen = []
    for value in range(1, 40):
        c.spin(0.2, one)
        check(c.cu.cuMemsetD8Async(there, value, c_size_t(1), one))
        check(c.cu.cuStreamWaitEvent(two, c.event(one), 0))
        check(c.cu.cuMemcpyDtoHAsync_v2(back, there, c_size_t(1), two))
        check(c.cu.cuStreamSynchronize(two))
        seen.append(byte_at(back).value == value)
    return all(seen)


def cards(last: int = 1) -> Any:
    """Between two cards' memory bytes go, be they peers or not; what is said of peers, and made of it."""
    one, other = Cuda(0), Cuda(last)
    there, back = other.memory(SMALL), ctypes.create_string_buffer(SMALL)
    check(other.cu.cuMemsetD8_v2(there, 5, c_size_t(SMALL)))
    one.sync()
    one.current()
    here, can, attribute = one.memory(SMALL), c_int(9), c_int(9)
    other.current()
    other.sync()
    one.current()
    check(one.cu.cuMemcpyPeer(here, one.context, there, other.context, c_size_t(SMALL)))
    check(one.cu.cuMemcpyDtoH_v2(back, here, c_size_t(SMALL)))
    check(one.cu.cuDeviceCanAccessPeer(byref(can), 0, last))
    attributes = []
    for number in (1, 2, 3, 4):
        check(one.cu.cuDeviceGetP2PAttribute(byref(attribute), number, 0, last))
        attributes.append(attribute.value)
    return {
        "moved": back.raw == b"\5" * SMALL,
        "can": [can.value, *attributes],
        "enabled": [one.cu.cuCtxEnablePeerAccess(other.context, 0) for _ in range(2)],
        "disabled": [one.cu.cuCtxDisablePeerAccess(other.context) for _ in range(2)],
        "refused": [
            one.cu.cuCtxEnablePeerAccess(one.context, 0),
            one.cu.cuCtxEnablePeerAccess(other.context, 1),
            one.cu.cuDeviceCanAccessPeer(byref(can), 0, 99),
        ],
    }


def unlike_cards() -> Any:
    return cards(2)


def host_memory() -> Any:
    """Flags, addresses and mistakes of memory of the host's."""
    c = Cuda()
    flags, address, pointer = c_uint(), c_uint64(), c_void_p()
    check(c.cu.cuMemAllocHost_v2(byref(pointer), c_size_t(SMALL)))
    check(c.cu.cuMemHostGetFlags(byref(flags), pointer))
    check(c.cu.cuMemHostGetDevicePointer_v2(byref(address), pointer, 0))
    own = ctypes.create_string_buffer(SMALL)
    registrations = [c.cu.cuMemHostRegister_v2(own, c_size_t(SMALL), 0) for _ in range(2)]
    unregistered = [c.cu.cuMemHostUnregister(own) for _ in range(2)]
    freed = [c.cu.cuMemFreeHost(pointer) for _ in range(2)]
    return {
        "flags": flags.value,
        "same": address.value == pointer.value,
        "registered": registrations,
        "unregistered": unregistered,
        "freed": freed,
        "not_the_cards": c.cu.cuMemFree_v2(c_uint64(ctypes.addressof(own))),
        "too_much": c.cu.cuMemHostAlloc(byref(pointer), c_size_t(1 << 60), 0),
    }


def managed_memory() -> Any:
    """Prefetching and advice are taken for managed memory, and for no other. It is what is mapped of the file
    of nvidia-uvm at the address that is the offset, and ends with that.
    """
    c = Cuda()
    managed, value = c_uint64(), c_int(9)
    check(c.cu.cuMemAllocManaged(byref(managed), c_size_t(MIB), 1))
    other, size = c.memory(MIB), c_size_t(MIB)
    host = Location(HOST_LOCATION, 0)
    byte_at(c_void_p(managed.value)).value = 3
    back = ctypes.create_string_buffer(1)
    check(c.cu.cuMemcpyDtoH_v2(back, managed, c_size_t(1)))
    results = [
        c.cu.cuMemPrefetchAsync(managed, size, 0, None),
        c.cu.cuMemPrefetchAsync(managed, size, -1, None),
        c.cu.cuMemPrefetchAsync(managed, size, 99, None),
        c.cu.cuMemPrefetchAsync_v2(managed, size, host, 0, None),
        c.cu.cuMemPrefetchAsync(other, size, 0, None),
        c.cu.cuMemAdvise(managed, size, 1, 0),
        c.cu.cuMemAdvise_v2(managed, size, 3, host),
        c.cu.cuMemAdvise(managed, size, 7, 0),
        c.cu.cuMemAdvise(managed, c_size_t(2 * MIB), 1, 0),
        c.cu.cuMemRangeGetAttribute(byref(value), c_size_t(4), 1, managed, size),
        c.cu.cuStreamAttachMemAsync(None, managed, c_size_t(0), 1),
        c.cu.cuMemAllocManaged(byref(c_uint64()), c_size_t(MIB), 0),
    ]
    mapped = [mapped_of_uvm(managed.value), mapped_of_uvm(other.value)]
    check(c.cu.cuMemFree_v2(managed))
    mapped.append(mapped_of_uvm(managed.value))
    return {"back": back.raw[0], "results": results, "read_mostly": value.value, "mapped": mapped}


def mapped_of_uvm(address: int | None) -> bool:
    """At its own offset, shared."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, flags, offset, *_ = line.split()
        if int(span.split("-")[0], 16) == int(offset, 16) == address:
            return flags == "rw-s" and "nvidia-uvm" in line
    return False


def pool_order() -> Any:
    """Twenty times 4 GiB, freed in the order of a stream, on one of 16: who asks waits for the stream."""
    c = Cuda()
    stream, first, address = c.stream(), c_uint64(), c_uint64()
    size = c_size_t(4 << 30)
    for _ in range(20):
        check(c.cu.cuMemAllocAsync(byref(address), size, stream))
        c.spin(5, stream)
        check(c.cu.cuMemFreeAsync(address, stream))
    check(c.cu.cuMemAllocAsync(byref(first), size, stream))
    too_much = [c.cu.cuMemAllocAsync(byref(address), size, stream) for _ in range(4)]
    plain = c.memory(MIB)
    pool, other, standing = c_void_p(), c_void_p(), c_void_p()
    check(c.cu.cuDeviceGetDefaultMemPool(byref(pool), 0))
    props = (c_int * 22)(1, 0, 1, 0)
    check(c.cu.cuMemPoolCreate(byref(other), props))
    check(c.cu.cuDeviceSetMemPool(0, other))
    check(c.cu.cuDeviceGetMemPool(byref(standing), 0))
    check(c.cu.cuMemAllocFromPoolAsync(byref(address), c_size_t(MIB), other, stream))
    used = c_uint64()
    check(c.cu.cuMemPoolGetAttribute(other, 7, byref(used)))
    access, here, away = c_int(), Location(1, 0), Location(1, 1)
    check(c.cu.cuMemPoolGetAccess(byref(access), other, byref(here)))
    accesses = [access.value]
    check(c.cu.cuMemPoolGetAccess(byref(access), other, byref(away)))
    accesses.append(access.value)
    return {
        "too_much": too_much,
        "not_of_a_pool": c.cu.cuMemFreeAsync(plain, stream),
        "current": standing.value == other.value,
        "used": used.value,
        "access": accesses,
        "for_others": [
            c.cu.cuMemPoolSetAccess(other, (c_int * 3)(1, card, 3), c_size_t(1)) for card in (1, 2)
        ],
        "default_destroyed": c.cu.cuMemPoolDestroy(pool),
        "destroyed": c.cu.cuMemPoolDestroy(other),
        "still_ours": c.cu.cuMemFreeAsync(address, stream),
        "twice": c.cu.cuMemFreeAsync(address, stream),
        "to_end": c.cu.cuMemFree_v2(first),
        "again": c.cu.cuMemPoolTrimTo(other, c_size_t(0)),
    }


def own_stream_forms() -> Any:
    """What cuGetProcAddress has for a thread's own stream.

    The legacy stream would wait for another's work, and the thread's own for the legacy one.
    """
    c = Cuda()
    there, pinned, other = c.memory(SMALL), c.pinned(SMALL), c.stream()
    size, value = c_size_t(SMALL), c_uint(0)

    def form(name: str) -> Any:
        found = c_void_p()
        check(c.cu.cuGetProcAddress_v2(name.encode(), byref(found), 13000, c_uint64(2), None))
        return ctypes.CFUNCTYPE(c_int)(found.value or 0)

    work = {
        "cuMemcpyHtoDAsync": (there, pinned, size, None),
        "cuMemcpyDtoHAsync": (pinned, there, size, None),
        "cuMemcpyDtoDAsync": (there, there, size, None),
        "cuMemcpyAsync": (there, pinned, size, None),
        "cuMemsetD8Async": (there, value, size, None),
        "cuMemsetD16Async": (there, value, c_size_t(8), None),
        "cuMemsetD32Async": (there, value, c_size_t(8), None),
        "cuMemsetD2D8Async": (there, c_size_t(64), value, c_size_t(8), c_size_t(8), None),
        "cuMemsetD2D16Async": (there, c_size_t(64), value, c_size_t(8), c_size_t(8), None),
        "cuMemsetD2D32Async": (there, c_size_t(64), value, c_size_t(8), c_size_t(8), None),
        "cuMemcpyPeerAsync": (there, c.context, there, c.context, size, None),
    }
    asynchronous = {}
    for name, arguments in work.items():

        def attempt(ms: float, name: str = name, arguments: Any = arguments) -> list[int]:
            c.sync()
            busy = ctypes.CFUNCTYPE(None, c_void_p)(lambda _: time.sleep(ms / 1000))
            check(c.cu.cuLaunchHostFunc(other, busy, None))
            result = form(name)(*arguments)
            check(c.cu.cuMemsetD8Async(there, 0, c_size_t(1), PER_THREAD))
            check(c.cu.cuStreamSynchronize(PER_THREAD))
            seen = [result, c.cu.cuStreamQuery(other)]
            c.sync()
            return seen

        asynchronous[name] = longer(attempt, lambda seen: seen[1] == NOT_READY, ms=20)
    c.sync()
    ids = [c_uint64() for _ in range(3)]
    for made, stream in zip(ids, (None, PER_THREAD, c_void_p(1)), strict=True):
        check(form("cuStreamGetId")(stream, byref(made)))
    capturing, device = c_int(9), c_int(9)
    check(form("cuStreamIsCapturing")(None, byref(capturing)))
    check(form("cuStreamGetDevice")(None, byref(device)))
    address, called = c_uint64(), threading.Event()
    callback = ctypes.CFUNCTYPE(None, c_void_p)(lambda _: called.set())
    check(form("cuMemAllocAsync")(byref(address), size, None))
    check(form("cuLaunchHostFunc")(None, callback, None))
    check(form("cuMemFreeAsync")(address, None))
    check(form("cuStreamSynchronize")(None))
    return {
        "asynchronous": asynchronous,
        "ids": [ids[0].value == ids[1].value, ids[0].value == ids[2].value],
        "asked": [capturing.value, device.value],
        "called": called.is_set(),
    }


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]]()))
