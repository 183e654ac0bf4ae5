"""Calls of the CUDA driver API, one by one, with a line of JSON for each: where a start stops, one sees at
which call.

    cuda_steps.py STEP...

Steps: init, count, context, context=FLAGS, context=FLAGS:CARD, info=TIMES, alloc=MIB, leave=MIB,
managed=MIB, free, copy=MIB, keep=MIB, same, moved=SECONDS, event, peer, hold=SECONDS, destroy. One that
fails ends it, unless its name ends with "?". Any Python runs it, without other modules.
"""

import ctypes
import json
import os
import sys
import time
from collections.abc import Callable

MIB = 1 << 20
BLOCKING_SYNC = 1  # CU_EVENT_BLOCKING_SYNC
# CUDA's error, or what the library has not got.
Code = tuple[int | str, dict[str, object]]


class Cuda:
    """The library, and what the steps before have made."""

    def __init__(self) -> None:
        self.lib = ctypes.CDLL("libcuda.so.1")
        self.contexts: list[ctypes.c_void_p] = []
        self.memory: list[ctypes.c_uint64] = []
        self.kept: bytes = b""

    def init(self, _: str) -> Code:
        return self.lib.cuInit(0), {}

    def count(self, _: str) -> Code:
        number = ctypes.c_int()
        return self.lib.cuDeviceGetCount(ctypes.byref(number)), {"cards": number.value}

    def context(self, text: str) -> Code:
        flags, _, card = text.partition(":")
        context = ctypes.c_void_p()
        code = self.lib.cuCtxCreate_v2(ctypes.byref(context), int(flags or 0), int(card or 0))
        if not code:
            self.contexts.append(context)
        return code, {}

    def info(self, text: str) -> Code:
        free, total, code = ctypes.c_size_t(), ctypes.c_size_t(), 0
        for _ in range(int(text or 1)):
            code = code or self.lib.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
        return code, {"free_mib": free.value >> 20, "total_mib": total.value >> 20}

    def alloc(self, text: str) -> Code:
        pointer = ctypes.c_uint64()
        code = self.lib.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(int(float(text) * MIB)))
        if not code:
            self.memory.append(pointer)
        return code, {"mib": float(text)}

    def leave(self, text: str) -> Code:
        """All that is shown as free but so much, in one piece."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        code = self.lib.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
        return (code, {}) if code else self.alloc(str((free.value >> 20) - int(text)))

    def managed(self, text: str) -> Code:
        """Of which the first byte is written here, so that it is known to be there."""
        pointer = ctypes.c_uint64()
        code = self.lib.cuMemAllocManaged(ctypes.byref(pointer), ctypes.c_size_t(int(text) * MIB), 1)
        if not code:
            ctypes.memset(pointer.value or 0, 1, 1)
            self.memory.append(pointer)
        return code, {"mib": int(text)}

    def free(self, _: str) -> Code:
        return self.lib.cuMemFree_v2(self.memory.pop()), {}

    def copy(self, text: str) -> Code:
        """There and back, and whether it is the same then."""
        size = int(text) * MIB
        there, back = ctypes.create_string_buffer(os.urandom(4096) * (size // 4096), size), bytes(size)
        pointer = ctypes.c_uint64()
        code = self.lib.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size))
        code = code or self.lib.cuMemcpyHtoD_v2(pointer, there, ctypes.c_size_t(size))
        code = code or self.lib.cuMemcpyDtoH_v2(back, pointer, ctypes.c_size_t(size))
        self.lib.cuMemFree_v2(pointer)
        return code, {"same": back == there.raw}

    def keep(self, text: str) -> Code:
        """Memory with something in it."""
        size = int(text) * MIB
        self.kept = os.urandom(4096) * (size // 4096)
        code, _ = self.alloc(text)
        return code or self.lib.cuMemcpyHtoD_v2(self.memory[-1], self.kept, ctypes.c_size_t(size)), {}

    def same(self, _: str) -> Code:
        """Whether that is still in it."""
        back = bytes(len(self.kept))
        code = self.lib.cuMemcpyDtoH_v2(back, self.memory[-1], ctypes.c_size_t(len(back)))
        return code, {"same": back == self.kept}

    def moved(self, text: str) -> Code:
        """Waits until the process is checkpointed and running again."""
        state, end = ctypes.c_int(), time.monotonic() + float(text)
        seen: set[int] = set()
        code = 0
        while not code and time.monotonic() < end and not (seen and state.value == 0):
            time.sleep(0.002)
            code = self.lib.cuCheckpointProcessGetState(os.getpid(), ctypes.byref(state))
            seen |= {state.value} - {0}
        return code, {"states": sorted(seen)}

    def event(self, _: str) -> Code:
        """One that is waited for by sleeping, for which the driver wakes a file of the card's."""
        event = ctypes.c_void_p()
        code = self.lib.cuEventCreate(ctypes.byref(event), BLOCKING_SYNC)
        code = code or self.lib.cuEventRecord(event, None)
        code = code or self.lib.cuEventSynchronize(event)
        return code or self.lib.cuEventDestroy_v2(event), {}

    def peer(self, _: str) -> Code:
        """Whether the first two cards are said to reach each other, and what asking for it brings."""
        may = ctypes.c_int(-1)
        code = self.lib.cuDeviceCanAccessPeer(ctypes.byref(may), 0, 1)
        enabled = self.lib.cuCtxEnablePeerAccess(self.contexts[0], 0) if len(self.contexts) > 1 else None
        return code, {"may": may.value, "enabled": enabled}

    def hold(self, text: str) -> Code:
        time.sleep(float(text))
        return 0, {}

    def destroy(self, _: str) -> Code:
        return self.lib.cuCtxDestroy_v2(self.contexts.pop()), {}


STEPS: dict[str, Callable[[Cuda, str], Code]] = {
    name: getattr(Cuda, name)
    for name in (
        "init", "count", "context", "info", "alloc", "leave", "managed", "free", "copy", "keep", "same", "moved",
        "event", "peer", "hold", "destroy",
    )
}  # fmt: skip


def main(words: list[str]) -> int:
    try:
        cuda = Cuda()
    except OSError as error:
        print(json.dumps({"step": "libcuda.so.1", "code": str(error)}), flush=True)
        return 1
    for word in words:
        name, _, text = word.partition("=")
        begin = time.monotonic()
        try:
            code, figures = STEPS[name.removesuffix("?")](cuda, text)
        except AttributeError as error:
            code, figures = str(error), {}
        took = round((time.monotonic() - begin) * 1000, 3)
        print(json.dumps({"step": word, "code": code, "ms": took, **figures}), flush=True)
        if code and not name.endswith("?"):
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
