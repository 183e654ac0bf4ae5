"""CuPy: 64 MiB of managed memory, touched by both sides and moved on request; a kernel by NVRTC."""

from __future__ import annotations

import ctypes
from typing import Any

from report import Report

report = Report("cupy_work")
report.step = "import cupy"
import cupy  # noqa: E402

SIZE = 64 << 20
NUMBER = SIZE // 4
SOURCE = r"""
extern "C" __global__ void twice(float *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        x[i] *= 2;
}
"""
memory: Any = None


def managed() -> str:
    """Written by the card, then read and written by the processor."""
    global memory
    memory = cupy.cuda.malloc_managed(SIZE)
    array = cupy.ndarray((NUMBER,), dtype=cupy.float32, memptr=memory)
    array.fill(3)
    cupy.cuda.runtime.deviceSynchronize()
    words = ctypes.cast(memory.ptr, ctypes.POINTER(ctypes.c_float))
    for place in range(0, NUMBER, 1024):  # each page
        if words[place] != 3:
            raise RuntimeError(f"{place}: {words[place]}")
        words[place] = 4
    total = float(array[::1024].sum())
    if total != 4 * (NUMBER // 1024):
        raise RuntimeError(f"sum {total}")
    return hex(memory.ptr)


def prefetch() -> dict[str, object]:
    """By CuPy, and by the driver's older call, which takes no location."""
    found: dict[str, object] = {}
    try:
        cupy.cuda.runtime.memPrefetchAsync(memory.ptr, SIZE, 0, 0)
        found["cupy"] = 0
    except Exception as error:
        found["cupy"] = f"{type(error).__name__}: {error}"
    lib = ctypes.CDLL("libcuda.so.1")
    pointer, size, none = ctypes.c_uint64(memory.ptr), ctypes.c_size_t(SIZE), ctypes.c_void_p()
    for name, function, second, third in (
        ("to_card", lib.cuMemPrefetchAsync, 0, none),
        ("to_host", lib.cuMemPrefetchAsync, -1, none),
        ("read_mostly", lib.cuMemAdvise, 1, 0),
        ("preferred_card", lib.cuMemAdvise, 3, 0),
        ("accessed_by_card", lib.cuMemAdvise, 5, 0),
    ):
        found[name] = function(pointer, size, second, third)
        cupy.cuda.runtime.deviceSynchronize()
    if found["to_card"] or found["to_host"]:
        raise RuntimeError(str(found))
    return found


def raw_kernel() -> float:
    array = cupy.full((1 << 20,), 1.5, dtype=cupy.float32)
    kernel = cupy.RawKernel(SOURCE, "twice")
    kernel(((1 << 20) // 256,), (256,), (array, cupy.int32(1 << 20)))
    cupy.cuda.runtime.deviceSynchronize()
    total = float(array.sum())
    if total != 3.0 * (1 << 20):
        raise RuntimeError(f"sum {total}")
    return total


report.check("managed", managed)
if memory is not None:
    report.check("prefetch", prefetch)
report.check("raw_kernel", raw_kernel)
report.finish()
