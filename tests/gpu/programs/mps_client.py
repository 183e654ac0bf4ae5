"""A client of MPS: whether the card says so, a context, memory written and read."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p

from report import Cuda, Report

report = Report("mps_client")
cuda: Cuda


def start() -> str:
    global cuda
    cuda = Cuda()
    cuda("cuInit", 0)
    return "initialized"


def attribute() -> int:
    value = c_int()
    cuda("cuDeviceGetAttribute", byref(value), 133, 0)
    return value.value


def context() -> str:
    made = c_void_p()
    cuda("cuCtxCreate_v2", byref(made), 0, 0)
    return "made"


def memory() -> str:
    pointer, size = c_uint64(), 1 << 20
    cuda("cuMemAlloc_v2", byref(pointer), c_size_t(size))
    cuda("cuMemsetD8_v2", pointer, ctypes.c_ubyte(7), c_size_t(size))
    back = ctypes.create_string_buffer(size)
    cuda("cuMemcpyDtoH_v2", back, pointer, c_size_t(size))
    cuda("cuMemFree_v2", pointer)
    if back.raw != b"\7" * size:
        raise RuntimeError("wrong bytes")
    return "read back"


for name, call in (("init", start), ("mps_enabled", attribute), ("context", context), ("memory", memory)):
    report.check(name, call)
    if report.error:
        break
if not report.error and report.facts["mps_enabled"] != 1:
    report.fail("the card says that MPS is not on")
report.finish()
