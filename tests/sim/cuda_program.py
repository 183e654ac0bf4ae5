"""A program on the CUDA driver API, without a library in between: what the cases of this folder are made
of."""

import ctypes
from collections.abc import Callable
from ctypes import byref, c_char_p, c_float, c_size_t, c_uint64, c_void_p
from typing import TypeVar

Seen = TypeVar("Seen")
MIB = 1 << 20
NON_BLOCKING, DISABLE_TIMING = 1, 2
NOT_READY = 600
PER_THREAD = c_void_p(2)
NULL = c_void_p(0)
PTX = b"""
.version 6.0
.target sm_70
.visible .entry mgpu_spin(.param .u64 ns, .param .u64 out) { ret; }
.visible .entry plain() { ret; }
"""


def check(result: int) -> None:
    assert result == 0, result


def longer(attempt: Callable[[float], Seen], in_time: Callable[[Seen], bool], *, ms: float = 50) -> Seen:
    """What attempt(ms) saw beside kernels of that length, or of five and twenty-five times that.

    in_time() tells that the kernels ran for long enough to see it: a machine may keep a program from its
    processor for longer than any test should take whose processor is its own.
    """
    seen = attempt(ms)
    for factor in (5, 25):
        if in_time(seen):
            break
        seen = attempt(ms * factor)
    return seen


class Cuda:
    """A context on a device, with the kernels loaded."""

    def __init__(self, device: int = 0) -> None:
        self.cu = ctypes.CDLL("libcuda.so.1")
        check(self.cu.cuInit(0))
        self.context, self.module = c_void_p(), c_void_p()
        check(self.cu.cuCtxCreate_v2(byref(self.context), 0, device))
        check(self.cu.cuModuleLoadData(byref(self.module), PTX))
        self.spin_function = self.function("mgpu_spin")

    def function(self, name: str) -> c_void_p:
        found = c_void_p()
        check(self.cu.cuModuleGetFunction(byref(found), self.module, c_char_p(name.encode())))
        return found

    def current(self) -> None:
        check(self.cu.cuCtxSetCurrent(self.context))

    def launch(self, ms: float, stream: c_void_p = NULL, function: c_void_p | None = None) -> int:
        """The result. The kernel takes so long."""
        params = (c_void_p * 2)(
            ctypes.addressof(ns := c_uint64(int(ms * 1e6))), ctypes.addressof(out := c_uint64(0))
        )
        result: int = self.cu.cuLaunchKernel(
            function or self.spin_function, 1, 1, 1, 32, 1, 1, 0, stream, params, None
        )
        del ns, out
        return result

    def spin(self, ms: float, stream: c_void_p = NULL) -> None:
        check(self.launch(ms, stream))

    def stream(self, flags: int = 0) -> c_void_p:
        made = c_void_p()
        check(self.cu.cuStreamCreate(byref(made), flags))
        return made

    def event(self, stream: c_void_p | None = None, flags: int = 0) -> c_void_p:
        """A new event, recorded where a stream is given."""
        made = c_void_p()
        check(self.cu.cuEventCreate(byref(made), flags))
        if stream is not None:
            check(self.cu.cuEventRecord(made, stream))
        return made

    def sync(self) -> None:
        check(self.cu.cuCtxSynchronize())

    def between(self, start: c_void_p, end: c_void_p) -> float:
        elapsed = c_float()
        check(self.cu.cuEventElapsedTime(byref(elapsed), start, end))
        return elapsed.value

    def behind(self, submit: Callable[[], Seen], stream: c_void_p = NULL) -> Seen:
        """What submit() gives, whose work the stream gets while a kernel keeps it: times are then the card's
        alone.
        """

        def attempt(ms: float) -> tuple[Seen, bool]:
            self.sync()
            self.spin(ms, stream)
            kept = self.event(stream)
            return submit(), self.cu.cuEventQuery(kept) == NOT_READY

        seen, _ = longer(attempt, lambda seen: seen[1], ms=20)
        return seen

    def memory(self, size: int) -> c_uint64:
        made = c_uint64()
        check(self.cu.cuMemAlloc_v2(byref(made), c_size_t(size)))
        return made

    def pinned(self, size: int) -> c_void_p:
        made = c_void_p()
        check(self.cu.cuMemHostAlloc(byref(made), c_size_t(size), 0))
        return made
