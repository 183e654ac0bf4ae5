"""numba, as it comes from PyPI, run as `python numba_cases.py [CASE ...]` in a container with a card.

Prints one JSON document. Its driver layer alone: what compiles kernels is NVIDIA's, and not here.
"""

import json
import multiprocessing
import sys
import threading
import time
from typing import Any

import numpy as np
from numba import cuda
from numba.cuda.cudadrv.driver import CudaAPIError, device_memset, device_to_device

MIB = 1 << 20
OUT_OF_MEMORY = 2
BLOCK = 64 * MIB


def pattern(size: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


def cards() -> Any:
    device = cuda.get_current_device()
    free, total = cuda.current_context().get_memory_info()
    return {
        "count": len(cuda.gpus),
        "name": device.name.decode(),
        "capability": list(device.compute_capability),
        "threads": device.MAX_THREADS_PER_BLOCK,
        "processors": device.MULTIPROCESSOR_COUNT,
        "total_mib": total // MIB,
        "free_mib": free // MIB,
        "uuid": device.uuid.startswith("GPU-"),
    }


def copies() -> Any:
    """There and back, on the card, a part, with strides, and what a fill leaves."""
    data = pattern(9 * MIB + 5)
    there = cuda.to_device(data)
    other = cuda.device_array_like(there)
    other.copy_to_device(there)
    matrix = pattern(60 * 40).reshape(60, 40)
    column = cuda.to_device(np.asfortranarray(matrix))
    filled = cuda.device_array(1000, dtype=np.uint8)
    device_memset(filled, 0x5A, 600)
    return [
        bool((there.copy_to_host() == data).all()),
        bool((other.copy_to_host() == data).all()),
        bool((there[MIB : 2 * MIB].copy_to_host() == data[MIB : 2 * MIB]).all()),
        bool((column.copy_to_host() == matrix).all()),
        filled.copy_to_host()[[0, 599, 600]].tolist() == [0x5A, 0x5A, 0],
    ]


def pinned() -> Any:
    data = pattern(4 * MIB)
    host, back = cuda.pinned_array_like(data), cuda.pinned_array_like(data)
    host[:] = data
    stream = cuda.stream()
    there = cuda.to_device(host, stream=stream)
    there.copy_to_host(back, stream=stream)
    stream.synchronize()
    locked = np.zeros_like(data)
    with cuda.pinned(locked):
        there.copy_to_host(locked, stream=stream)
        stream.synchronize()
    mapped = cuda.mapped_array(16, dtype=np.uint8)
    mapped[:] = 7
    device_to_device(mapped, cuda.to_device(data[:16]), 16)
    cuda.synchronize()
    return [bool((x == data).all()) for x in (back, locked)] + [bool((mapped == data[:16]).all())]


def managed() -> list[bool]:
    """Written by the host, copied by the card, read by the host."""
    data = pattern(2 * MIB)
    shared = cuda.managed_array(data.size, dtype=np.uint8)
    shared[:] = data
    there = cuda.device_array(data.size, dtype=np.uint8)
    there.copy_to_device(cuda.as_cuda_array(shared))
    cuda.synchronize()
    shared[:] = 0
    cuda.as_cuda_array(shared).copy_to_device(there)
    cuda.synchronize()
    return [bool((np.asarray(shared) == data).all())]


def managed_cap() -> Any:
    """The cap holds for managed memory too, which is given back by its end."""
    context = cuda.current_context()
    before, held = steady_free(), []
    try:
        while True:
            held.append(cuda.managed_array(BLOCK, dtype=np.uint8))
    except CudaAPIError as error:
        refused = error.code
    left, number = context.get_memory_info().free, len(held)
    held.clear()
    context.memory_manager.deallocations.clear()
    return {
        "refused": refused == OUT_OF_MEMORY,
        "exact": left == before - number * BLOCK < BLOCK,
        "back": steady_free() == before,
    }


def steady_free() -> int:
    """Bytes. What munmap() gives back is seen within a second."""
    context = cuda.current_context()
    context.memory_manager.deallocations.clear()
    time.sleep(1.5)
    return int(context.get_memory_info().free)


def events() -> Any:
    """Milliseconds of a copy of 240 MiB from pinned memory, and that its own end is what a stream waits
    for."""
    size = 240 * MIB
    host = cuda.pinned_array(size, dtype=np.uint8)
    there = cuda.device_array(size, dtype=np.uint8)
    stream, other = cuda.stream(), cuda.stream()
    begin, end, after = (cuda.event() for _ in range(3))
    begin.record(stream)
    there.copy_to_device(host, stream=stream)
    end.record(stream)
    pending = not end.query()
    end.wait(other)
    after.record(other)
    after.synchronize()
    return {
        "pending": pending,
        "done": end.query(),
        "ms": cuda.event_elapsed_time(begin, end),
        "order_ms": cuda.event_elapsed_time(end, after),
    }


def callbacks() -> Any:
    """A function of the program's runs where its stream has come to, and the stream goes on behind it."""
    stream, data = cuda.stream(), pattern(MIB)
    there, back = cuda.to_device(data, stream=stream), cuda.pinned_array_like(data)
    seen, returned = [], threading.Event()

    def look(_stream: Any, _status: int, _data: Any) -> None:
        seen.append(bool((back == data).all()))
        returned.set()

    there.copy_to_host(back, stream=stream)
    stream.add_callback(look)
    end = cuda.event()
    end.record(stream)
    end.synchronize()
    return seen + [returned.is_set()]


def _child(handle: Any, expected: bytes, answer: Any) -> None:
    with handle as there:
        answer.put(there.copy_to_host().tobytes() == expected)
        there[:16].copy_to_device(np.full(16, 0xEE, dtype=np.uint8))
        cuda.synchronize()


def ipc() -> Any:
    """Another process reads what is in the memory, and writes to it."""
    spawn = multiprocessing.get_context("spawn")
    data = pattern(MIB)
    there = cuda.to_device(data)
    answer = spawn.Queue()
    child = spawn.Process(target=_child, args=(there.get_ipc_handle(), data.tobytes(), answer))
    child.start()
    read = answer.get(timeout=60)
    child.join()
    now = there.copy_to_host()
    return [read, child.exitcode, bool((now[:16] == 0xEE).all()), bool((now[16:] == data[16:]).all())]


def out_of_memory() -> Any:
    """Fills what is free, is refused the next, and goes on."""
    context = cuda.current_context()
    before, held = steady_free(), []
    try:
        while True:
            held.append(cuda.device_array(BLOCK, dtype=np.uint8))
    except CudaAPIError as error:
        refused = error.code
    left = context.get_memory_info().free
    number = len(held)
    held.clear()
    context.memory_manager.deallocations.clear()
    data = pattern(BLOCK)
    return {
        "before_mib": before // MIB,
        "refused": refused == OUT_OF_MEMORY,
        "left_mib": left // MIB,
        "held": number,
        "after": bool((cuda.to_device(data).copy_to_host() == data).all()),
    }


CASES = (cards, copies, pinned, managed, managed_cap, events, callbacks, ipc, out_of_memory)

if __name__ == "__main__":
    chosen = [case for case in CASES if case.__name__ in sys.argv[1:] or len(sys.argv) == 1]
    print(json.dumps({case.__name__: case() for case in chosen}))
