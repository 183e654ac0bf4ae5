"""CUDA driver-API programs, run as `python cuda_cases.py CASE` where ioctls reach a card. Prints one JSON
document.

Only ctypes and the public interface: what an application does, without one.
"""

import ctypes
import json
import os
import sys
import threading
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

MIB = 1 << 20
NOT_INITIALIZED, INVALID_CONTEXT = 3, 201


def load() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def check(result: int) -> None:
    assert result == 0, result


def context(cu: ctypes.CDLL, device: int = 0) -> c_void_p:
    made = c_void_p()
    check(cu.cuCtxCreate_v2(byref(made), 0, device))
    return made


def info(cu: ctypes.CDLL) -> list[int]:
    """[free, total] in bytes."""
    free, total = c_size_t(), c_size_t()
    check(cu.cuMemGetInfo_v2(byref(free), byref(total)))
    return [free.value, total.value]


def alloc(cu: ctypes.CDLL, size: int) -> tuple[int, int]:
    """(result, address)."""
    pointer = c_uint64()
    return cu.cuMemAlloc_v2(byref(pointer), c_size_t(size)), pointer.value


def devices() -> Any:
    cu = load()
    result = cu.cuInit(0)
    if result:
        return result
    count = c_int()
    check(cu.cuDeviceGetCount(byref(count)))
    found = []
    for ordinal in range(count.value):
        name, bus, uuid = (ctypes.create_string_buffer(n) for n in (64, 32, 16))
        total, major, sms = c_size_t(), c_int(), c_int()
        check(cu.cuDeviceGetName(name, 64, ordinal))
        check(cu.cuDeviceGetPCIBusId(bus, 32, ordinal))
        check(cu.cuDeviceGetUuid_v2(uuid, ordinal))
        check(cu.cuDeviceTotalMem_v2(byref(total), ordinal))
        check(cu.cuDeviceGetAttribute(byref(major), 75, ordinal))
        check(cu.cuDeviceGetAttribute(byref(sms), 16, ordinal))
        found.append(
            [name.value.decode(), bus.value.decode(), uuid.raw.hex(), total.value, major.value, sms.value]
        )
    return found


def memory() -> Any:
    """Fill the card, run out of it, and go on."""
    cu = load()
    check(cu.cuInit(0))
    handle = context(cu)
    start = info(cu)
    first, address = alloc(cu, start[0] - 64 * MIB)
    second, _ = alloc(cu, 64 * MIB + 1)
    third, other = alloc(cu, 64 * MIB)
    full = info(cu)
    fourth, _ = alloc(cu, 1)
    base, size = c_uint64(), c_size_t()
    check(cu.cuMemGetAddressRange_v2(byref(base), byref(size), c_uint64(address + 12345)))
    assert (base.value, size.value) == (address, start[0] - 64 * MIB)
    check(cu.cuMemFree_v2(c_uint64(other)))
    assert cu.cuMemFree_v2(c_uint64(other)) != 0
    after = info(cu)
    check(cu.cuCtxDestroy_v2(handle))
    again = context(cu)
    end = info(cu)
    check(cu.cuCtxDestroy_v2(again))
    return {
        "results": [first, second, third, fourth],
        "start": start,
        "full": full,
        "after": after,
        "end": end,
    }


def no_room_for_a_context() -> Any:
    cu = load()
    check(cu.cuInit(0))
    context(cu)
    check(alloc(cu, info(cu)[0] - MIB)[0])
    before = info(cu)
    second = c_void_p()
    return [cu.cuCtxCreate_v2(byref(second), 0, 0), info(cu) == before]


def fork() -> Any:
    """The parent's context is of no use to a child, which starts anew and leaves the parent's alone."""
    cu = load()
    check(cu.cuInit(0))
    context(cu)
    _, address = alloc(cu, 100 * MIB)
    child = os.fork()
    if child == 0:
        free, total = c_size_t(), c_size_t()
        assert cu.cuMemGetInfo_v2(byref(free), byref(total)) == NOT_INITIALIZED
        check(cu.cuInit(0))
        assert cu.cuMemGetInfo_v2(byref(free), byref(total)) == INVALID_CONTEXT
        context(cu)
        check(alloc(cu, 50 * MIB)[0])
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    check(cu.cuMemFree_v2(c_uint64(address)))
    return status


def primary() -> Any:
    cu = load()
    check(cu.cuInit(0))
    one, two, flags, active = c_void_p(), c_void_p(), c_uint(), c_int()
    check(cu.cuDevicePrimaryCtxRetain(byref(one), 1))
    check(cu.cuDevicePrimaryCtxRetain(byref(two), 1))
    assert one.value == two.value
    free, total = c_size_t(), c_size_t()
    assert cu.cuMemGetInfo_v2(byref(free), byref(total)) == INVALID_CONTEXT
    check(cu.cuCtxSetCurrent(one))
    device = c_int()
    check(cu.cuCtxGetDevice(byref(device)))
    assert device.value == 1
    check(alloc(cu, MIB)[0])
    used = info(cu)
    states = []
    for _ in range(2):
        check(cu.cuDevicePrimaryCtxRelease_v2(1))
        check(cu.cuDevicePrimaryCtxGetState(1, byref(flags), byref(active)))
        states.append(active.value)
    return {"states": states, "free": used[0], "released": cu.cuMemGetInfo_v2(byref(free), byref(total))}


def threads() -> Any:
    """A context is current to a thread; eight of them allocate and free at once."""
    cu = load()
    check(cu.cuInit(0))
    shared = context(cu)
    failures: list[int] = []

    def work() -> None:
        free, total = c_size_t(), c_size_t()
        failures.append(int(cu.cuMemGetInfo_v2(byref(free), byref(total)) != INVALID_CONTEXT))
        check(cu.cuCtxPushCurrent_v2(shared))
        for _ in range(50):
            result, address = alloc(cu, MIB)
            failures.append(result or cu.cuMemFree_v2(c_uint64(address)))

    start = info(cu)
    workers = [threading.Thread(target=work) for _ in range(8)]
    for thread in workers:
        thread.start()
    for thread in workers:
        thread.join()
    return {"failures": sum(failures), "calls": len(failures), "leaked": start[0] - info(cu)[0]}


def entry_points() -> Any:
    """What cuGetProcAddress finds, by name and CUDA version."""
    cu = load()
    found = []
    for name, version in (
        ("cuMemAlloc", 12000),
        ("cuMemAlloc", 1000),
        ("cuCtxCreate", 13000),
        ("cuLaunchKernel", 13000),
        ("cuTexRefCreate", 13000),
    ):
        function, status = c_void_p(), c_int()
        check(cu.cuGetProcAddress_v2(name.encode(), byref(function), version, c_uint64(0), byref(status)))
        found.append([bool(function.value), status.value])
    function = c_void_p()
    check(cu.cuGetProcAddress_v2(b"cuMemAlloc", byref(function), 12000, c_uint64(0), None))
    assert function.value == ctypes.cast(cu.cuMemAlloc_v2, c_void_p).value
    return found


def hold() -> Any:
    """Holds 1 GiB until stdin ends."""
    cu = load()
    check(cu.cuInit(0))
    context(cu)
    check(alloc(cu, 1 << 30)[0])
    print(json.dumps(os.getpid()), flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]]()))
