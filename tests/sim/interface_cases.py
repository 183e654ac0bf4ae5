"""The rest of what programs ask of the driver, run as `python interface_cases.py CASE`. Prints one JSON
document.
"""

import ctypes
import json
import sys
import tempfile
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

from tests.sim.cuda_program import PTX, Cuda, check

KIB = 1 << 10


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [("sizes", c_uint * 7), ("stream", c_void_p), ("attributes", c_void_p), ("count", c_uint)]


def context_settings() -> Any:
    """What is set is what is read, of this context alone."""
    c = Cuda()
    value, config, flags, version = c_size_t(), c_int(9), c_uint(), c_uint()
    check(c.cu.cuCtxSetLimit(0, c_size_t(4 * KIB)))
    check(c.cu.cuCtxGetLimit(byref(value), 0))
    check(c.cu.cuCtxSetCacheConfig(2))
    check(c.cu.cuCtxGetCacheConfig(byref(config)))
    configs = [config.value]
    check(c.cu.cuCtxSetSharedMemConfig(1))
    check(c.cu.cuCtxGetSharedMemConfig(byref(config)))
    configs.append(config.value)
    check(c.cu.cuCtxSetFlags(4))
    check(c.cu.cuCtxGetFlags(byref(flags)))
    check(c.cu.cuCtxResetPersistingL2Cache())
    check(c.cu.cuCtxGetApiVersion(c.context, byref(version)))
    other = Cuda(1)
    ids, limit, device = [c_uint64(), c_uint64()], c_size_t(), c_int(9)
    check(c.cu.cuCtxGetLimit(byref(limit), 0))
    for made, one in zip(ids, (c, other), strict=True):
        check(c.cu.cuCtxGetId(one.context, byref(made)))
    check(c.cu.cuCtxGetDevice_v2(byref(device), c.context))
    return {
        "limits": [value.value, limit.value],
        "configs": configs,
        "flags": flags.value,
        "other_id": ids[0].value != ids[1].value,
        "device": device.value,
        "refused": [
            c.cu.cuCtxSetLimit(99, c_size_t(1)),
            c.cu.cuCtxSetCacheConfig(4),
            c.cu.cuCtxSetFlags(256),
        ],
    }


def absent() -> Any:
    """What is not there is said not to be there."""
    c = Cuda()
    table, mode, status, identity = c_void_p(), c_int(2), c_int(9), c_uint64(9)
    handle, supported, text = ctypes.create_string_buffer(64), c_int(9), c_char_p()
    asked = [
        c.cu.cuGetExportTable(byref(table), handle),
        c.cu.cuStreamBeginCapture_v2(None, 0),
        c.cu.cuIpcGetEventHandle(handle, c.event()),
        c.cu.cuModuleGetGlobal_v2(None, None, c.module, b"variable"),
        c.cu.cuDeviceGetExecAffinitySupport(byref(supported), 0, 0),
    ]
    check(c.cu.cuStreamGetCaptureInfo_v2(None, byref(status), byref(identity), None, None, None))
    check(c.cu.cuThreadExchangeStreamCaptureMode(byref(mode)))
    modes = [mode.value]
    check(c.cu.cuThreadExchangeStreamCaptureMode(byref(mode)))
    modes.append(mode.value)
    check(c.cu.cuGetErrorString(217, byref(text)))
    profiler = [c.cu.cuProfilerStart(), c.cu.cuProfilerStop()]
    return {
        "asked": asked,
        "affinity": supported.value,
        "capturing": [status.value, identity.value],
        "modes": modes,
        "text": (text.value or b"").decode(),
        "profiler": profiler,
    }


def functions() -> Any:
    """A function by its module's file and a library's; what it may be told; how many blocks of it fit."""
    c = Cuda()
    found, module, name = c_void_p(), c_void_p(), c_char_p()
    with tempfile.NamedTemporaryFile() as file:
        file.write(PTX)
        file.flush()
        check(c.cu.cuModuleLoad(byref(module), file.name.encode()))
    check(c.cu.cuModuleGetFunction(byref(found), module, b"plain"))
    check(c.cu.cuFuncGetName(byref(name), found))
    own, value, count = c_void_p(), c_int(), c_int()
    check(c.cu.cuFuncGetModule(byref(own), found))
    check(c.cu.cuFuncSetAttribute(found, 8, 90 * KIB))
    check(c.cu.cuFuncGetAttribute(byref(value), 8, found))
    attributes = [value.value]
    check(c.cu.cuFuncGetAttribute(byref(value), 9, found))
    attributes.append(value.value)
    blocks = []
    for threads, shared in ((1024, 0), (32, 0), (256, 48 * KIB), (256, 97 * KIB)):
        check(
            c.cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(byref(count), found, threads, c_size_t(shared))
        )
        blocks.append(count.value)
    room = c_size_t()
    check(c.cu.cuOccupancyAvailableDynamicSMemPerBlock(byref(room), found, 2, 256))
    library, kernel, as_function = c_void_p(), c_void_p(), c_void_p()
    check(c.cu.cuLibraryLoadData(byref(library), PTX, None, None, 0, None, None, 0))
    check(c.cu.cuLibraryGetKernel(byref(kernel), library, b"plain"))
    check(c.cu.cuKernelGetFunction(byref(as_function), kernel))
    check(c.cu.cuKernelSetAttribute(8, 64 * KIB, kernel, 0))
    check(c.cu.cuKernelGetAttribute(byref(value), 8, kernel, 0))
    shape = (1, 1, 1, 32, 1, 1, 0)
    cooperative = c.cu.cuLaunchCooperativeKernel(as_function, *shape, None, None)
    config = LaunchConfig((c_uint * 7)(*shape))
    extended = c.cu.cuLaunchKernelEx(byref(config), kernel, None, None)
    c.sync()
    unloaded = [c.cu.cuLibraryUnload(library) for _ in range(2)]
    return {
        "name": (name.value or b"").decode(),
        "own": own.value == module.value,
        "attributes": [*attributes, value.value],
        "too_much": c.cu.cuFuncSetAttribute(found, 8, 97 * KIB),
        "configs": [c.cu.cuFuncSetCacheConfig(found, 1), c.cu.cuFuncSetCacheConfig(found, 4)],
        "blocks": blocks,
        "room": room.value,
        "launched": [cooperative, extended],
        "unloaded": unloaded,
        "no_file": c.cu.cuModuleLoad(byref(module), b"/nowhere"),
    }


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]]()))
