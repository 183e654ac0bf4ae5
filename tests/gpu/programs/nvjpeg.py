"""nvJPEG with its hardware engine, which an H100 has, on the JPEG of streams.h."""

from __future__ import annotations

import ctypes
import glob
import os
import re
from ctypes import byref, c_size_t, c_uint64, c_void_p

from report import Cuda, Report

HARDWARE, Y_ONLY = 3, 2
SIDE = 128
report = Report("nvjpeg")
cuda: Cuda


class Image(ctypes.Structure):
    _fields_ = (("channel", c_void_p * 4), ("pitch", c_size_t * 4))


def jpeg() -> bytes:
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "streams.h")) as source:
        body = re.search(r"jpeg_data\[\d+\] = \{([^}]*)\}", source.read())
    assert body
    return bytes(int(word, 16) for word in re.findall(r"0x[0-9a-f]+", body.group(1)))


def library() -> ctypes.CDLL:
    """Of the toolkit, or of a package of Python's."""
    names = ["libnvjpeg.so.13", "libnvjpeg.so.12"]
    for pattern in ("/usr/local/cuda*/lib64/libnvjpeg.so.1?", "/usr/*/python3*/*-packages/nvidia/*/lib/libnvjpeg.so.1?",
                    "/usr/local/lib/python3*/*-packages/nvidia/*/lib/libnvjpeg.so.1?",
                    "/opt/*/lib/python3*/site-packages/nvidia/*/lib/libnvjpeg.so.1?"):  # fmt: skip
        names += sorted(glob.glob(pattern))
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise OSError("no libnvjpeg")


def start() -> str:
    global cuda
    cuda = Cuda()
    cuda("cuInit", 0)
    context = c_void_p()
    # The first context of the card, which is the one that the runtime in nvJPEG uses.
    cuda("cuDevicePrimaryCtxRetain", byref(context), 0)
    cuda("cuCtxSetCurrent", context)
    return "context"


def call(lib: ctypes.CDLL, name: str, *arguments: object) -> None:
    report.step = name
    code = getattr(lib, name)(*arguments)
    if code:
        raise RuntimeError(f"{name}: {code}")


def decoded() -> dict[str, object]:
    lib, data = library(), jpeg()
    handle, state, pointer, out = c_void_p(), c_void_p(), c_uint64(), Image()
    call(lib, "nvjpegCreateEx", HARDWARE, None, None, 0, byref(handle))
    call(lib, "nvjpegJpegStateCreate", handle, byref(state))
    cuda("cuMemAlloc_v2", byref(pointer), c_size_t(SIDE * SIDE))
    out.channel[0], out.pitch[0] = pointer.value, SIDE
    source = ctypes.create_string_buffer(data, len(data))
    sources, sizes = (c_void_p * 1)(ctypes.addressof(source)), (c_size_t * 1)(len(data))
    call(lib, "nvjpegDecodeBatchedInitialize", handle, state, 1, 1, Y_ONLY)
    call(lib, "nvjpegDecodeBatched", handle, state, sources, sizes, byref(out), None)
    cuda("cuCtxSynchronize")
    back = ctypes.create_string_buffer(SIDE * SIDE)
    cuda("cuMemcpyDtoH_v2", back, pointer, c_size_t(SIDE * SIDE))
    call(lib, "nvjpegJpegStateDestroy", state)
    call(lib, "nvjpegDestroy", handle)
    cuda("cuMemFree_v2", pointer)
    mean = sum(back.raw) / SIDE / SIDE
    if not 134 <= mean <= 142:
        raise RuntimeError(f"mean {mean}")
    return {"mean": mean}


if report.check("start", start):
    report.check("decoded", decoded)
report.finish()
