"""Programs that are moved off the card and back, run as `python checkpoint_cases.py CASE`.

A program prints its pid and answers each line of stdin with a line of JSON.
"""

import ctypes
import hashlib
import json
import os
import sys
import threading
from collections.abc import Callable
from ctypes import byref, c_int, c_size_t, c_ubyte, c_uint64, c_void_p
from pathlib import Path
from typing import Any

from tests.sim.cuda_program import MIB, NON_BLOCKING, NULL, Cuda, check

SIZE = 8 * MIB

Answers = dict[str, Callable[[], Any]]


def serve(answers: Answers) -> None:
    print(json.dumps(os.getpid()), flush=True)
    for line in sys.stdin:
        print(json.dumps(answers[line.strip()]()), flush=True)


def write(c: Cuda, to: c_uint64, seed: int) -> None:
    data = hashlib.shake_128(bytes([seed])).digest(SIZE)
    check(c.cu.cuMemcpyHtoD_v2(to, data, c_size_t(SIZE)))


def digest(c: Cuda, address: c_uint64) -> str:
    read = ctypes.create_string_buffer(SIZE)
    check(c.cu.cuMemcpyDtoH_v2(read, address, c_size_t(SIZE)))
    return hashlib.sha256(read.raw).hexdigest()


class Mapped:
    """Memory of cuMemCreate() in the second half of a reservation."""

    def __init__(self, c: Cuda) -> None:
        self.address, self.handle, properties = c_uint64(), c_uint64(), (c_int * 16)(1, 1, 1, 0)
        check(
            c.cu.cuMemAddressReserve(
                byref(self.address), c_size_t(2 * SIZE), c_size_t(0), c_uint64(0), c_uint64(0)
            )
        )
        self.address.value += SIZE
        check(c.cu.cuMemCreate(byref(self.handle), c_size_t(SIZE), properties, c_uint64(0)))
        check(c.cu.cuMemMap(self.address, c_size_t(SIZE), c_size_t(0), self.handle, c_uint64(0)))
        check(c.cu.cuMemSetAccess(self.address, c_size_t(SIZE), (c_int * 3)(1, 0, 3), c_size_t(1)))


class Everything:
    """Memory of each kind that can be moved, two contexts on two cards that are peers, streams, events, a
    module.
    """

    def __init__(self) -> None:
        self.second, self.c = Cuda(1), Cuda(0)
        c = self.c
        self.stream, self.mapped, self.pinned = c.stream(NON_BLOCKING), Mapped(c), c.pinned(SIZE)
        self.pooled = c_uint64()
        check(c.cu.cuMemAllocAsync(byref(self.pooled), c_size_t(SIZE), self.stream))
        check(c.cu.cuStreamSynchronize(self.stream))
        self.plain, self.untouched = c.memory(SIZE), c.memory(SIZE)
        for seed, address in enumerate((self.plain, self.pooled, self.mapped.address)):
            write(c, address, seed)
        ctypes.memset(self.pinned, 7, SIZE)
        self.began = c.event(self.stream)
        c.spin(3, self.stream)
        self.ended = c.event(self.stream)
        self.second.current()
        self.other = self.second.memory(SIZE)
        write(self.second, self.other, 9)
        c.current()
        check(c.cu.cuCtxEnablePeerAccess(self.second.context, 0))

    def look(self) -> Any:
        c = self.c
        self.second.current()
        other = digest(self.second, self.other)
        c.current()
        return {
            "digests": [
                *(digest(c, a) for a in (self.plain, self.pooled, self.mapped.address, self.untouched)),
                other,
            ],
            "addresses": [self.plain.value, self.pooled.value, self.mapped.address.value, self.pinned.value],
            "peers": c.cu.cuCtxEnablePeerAccess(self.second.context, 0),
            "ms": round(c.between(self.began, self.ended), 4),
            "pinned": c_ubyte.from_address((self.pinned.value or 0) + SIZE - 1).value,
        }

    def work(self) -> Any:
        """Kernels, copies and events go on; so do allocations."""
        c = self.c
        began = c.event(self.stream)
        c.spin(2, self.stream)
        c.spin(2)
        ended = c.event(self.stream)
        more = c.memory(SIZE)
        check(c.cu.cuMemcpyDtoD_v2(more, self.plain, c_size_t(SIZE)))
        check(c.cu.cuCtxSynchronize())
        same = digest(c, more) == digest(c, self.plain)
        check(c.cu.cuMemFree_v2(more))
        return {"same": same, "ms": round(c.between(began, ended), 3)}

    def fill(self) -> int:
        """Memory of the host is the program's at all times."""
        ctypes.memset(self.pinned, 8, SIZE)
        return 8


def everything() -> None:
    made = Everything()
    serve({"look": made.look, "work": made.work, "pin": made.fill})


def plain() -> None:
    """A context on the first card, and memory."""
    c = Cuda()
    there = c.memory(SIZE)
    write(c, there, 1)
    blocked: list[threading.Thread] = []

    def call_in_thread() -> None:
        def call() -> None:
            c.current()
            check(c.cu.cuCtxSynchronize())

        blocked.append(threading.Thread(target=call))
        blocked[-1].start()

    def fork() -> int:
        child = os.fork()
        if not child:
            free = c_size_t()
            os._exit(c.cu.cuMemGetInfo_v2(byref(free), byref(free)) + c.cu.cuInit(0))
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def back() -> str:
        while blocked:
            blocked.pop().join()
        return digest(c, there)

    serve(
        {
            "look": back,
            "spin": lambda: c.spin(400),
            "spin long": lambda: c.spin(4000),
            "call": call_in_thread,
            "blocked": lambda: any(thread.is_alive() for thread in blocked),
            "fork": fork,
            "fill": lambda: c.memory(free(c) - 64 * MIB).value > 0,
        }
    )


def holder() -> None:
    """Memory that nothing is copied to, and no channel of a copy engine."""
    c = Cuda()
    held = c.memory(120 * MIB)
    serve({"holds": lambda: held.value > 0})


def begins() -> None:
    """In processes of their own: how often there is a thread for checkpoints once cuInit() has returned."""
    cuda = ctypes.CDLL("libcuda.so.1")

    def found() -> bool:
        child = os.fork()
        if not child:
            check(cuda.cuInit(0))
            names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
            os._exit(any(name.startswith("cuda-ckpt-") for name in names))
        return bool(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    serve({"found": lambda: sum(found() for _ in range(50))})


def free(c: Cuda) -> int:
    bytes_free, total = c_size_t(), c_size_t()
    check(c.cu.cuMemGetInfo_v2(byref(bytes_free), byref(total)))
    return bytes_free.value


def host_function() -> None:
    """A function of the program's waits in a stream."""
    c = Cuda()
    proceed = threading.Event()
    function = ctypes.CFUNCTYPE(None, c_void_p)(lambda _: proceed.wait())
    check(c.cu.cuLaunchHostFunc(NULL, function, None))
    serve({"proceed": proceed.set, "sync": c.sync})


def managed() -> None:
    c = Cuda()
    made = c_uint64()
    check(c.cu.cuMemAllocManaged(byref(made), c_size_t(SIZE), 1))
    write(c, made, 3)
    serve({"look": lambda: digest(c, made)})


def given_away() -> None:
    c = Cuda()
    made = c.memory(SIZE)
    write(c, made, 3)
    check(c.cu.cuIpcGetMemHandle(ctypes.create_string_buffer(64), made))
    serve({"look": lambda: digest(c, made)})


if __name__ == "__main__":
    globals()[sys.argv[1]]()
