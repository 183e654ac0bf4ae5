"""tinygrad's NV backend, a client of NVIDIA's resource manager without any library of NVIDIA's: words say
what to do.

Prints a JSON document as its last line. Where lines come on its input, it goes on with each.
"""

import json
import os
import select
import sys
import time
from collections.abc import Iterator
from typing import Any

os.environ.update(DEV="NV", CACHEDB="/tmp/tinygrad.db", HOME="/tmp")
# The card is all that is used of it: no kernel is compiled.
from tinygrad.device import BufferSpec, Device

MIB = 1 << 20
BLOCK = 64 * MIB


def there_and_back(device: Any, size: int, seed: int = 0) -> bool:
    """By parts, of which no two MiB are the same; all of it is there before any is fetched."""
    part = min(size, BLOCK)
    noise = os.urandom(MIB - 8)

    def pattern(at: int) -> bytearray:
        firsts = range(at // MIB, (at + part) // MIB)
        return bytearray(b"".join((seed << 32 | i).to_bytes(8, "little") + noise for i in firsts))

    def came_back(at: int) -> bool:
        back = bytearray(part)
        device.allocator._copyout(memoryview(back), buffer.offset(at, part))
        return back == pattern(at)

    buffer = device.allocator.alloc(size, BufferSpec(nolru=True))
    for at in range(0, size, part):
        device.allocator._copyin(buffer.offset(at, part), memoryview(pattern(at)))
    device.synchronize()
    same = all(came_back(at) for at in range(0, size, part))
    device.allocator.free(buffer, size, BufferSpec(nolru=True))
    return same


def opened(device: Any) -> dict[str, Any]:
    return {
        "arch": device.arch,
        "processors": device.num_gpcs * device.num_tpc_per_gpc * device.num_sm_per_tpc,
    }


def copies(device: Any) -> dict[str, Any]:
    began = time.monotonic()
    return {"same": there_and_back(device, 1024 * MIB), "seconds": round(time.monotonic() - began, 1)}


def fill(device: Any) -> Iterator[dict[str, Any]]:
    """Takes blocks until it is told that there is no memory; says so, waits, and gives them back."""
    held = []
    try:
        while True:
            held.append(device.allocator.alloc(BLOCK, BufferSpec(nolru=True)))
    except MemoryError as error:
        yield {"held": len(held), "error": type(error).__name__}
    for buffer in held:
        device.allocator.free(buffer, BLOCK, BufferSpec(nolru=True))
    yield {"after": there_and_back(device, 4 * MIB)}


def signals(device: Any) -> dict[str, Any]:
    """One queue waits for what the other signals, and for what the host does; each signal bears its time."""
    first, second, gate = (device.new_signal(value=0) for _ in range(3))
    copy, compute = device.hw_copy_queue_t, device.hw_compute_queue_t
    copy().wait(gate, 1).signal(first, 5).submit(device)
    compute().wait(first, 5).signal(second, 9).submit(device)
    time.sleep(0.05)
    before = first.value, second.value
    gate.value = 1
    second.wait(9)
    return {
        "before": before,
        "after": (first.value, second.value),
        "order": second.timestamp >= first.timestamp,
    }


def peers(device: Any) -> dict[str, Any]:
    """What the host puts onto the first card goes to the second by the first one's copy engine, and back."""
    other, size = Device["NV:1"], 4 * BLOCK
    options = BufferSpec(nolru=True)
    here, there = device.allocator.alloc(size, options), other.allocator.alloc(size, options)
    content = bytearray(os.urandom(MIB) * (size // MIB))
    content[:8] = content[-8:] = b"the ends"
    device.allocator._copyin(here, memoryview(content))
    device.synchronize()
    other.allocator._transfer(there, here, size, src_dev=device, dest_dev=other)
    other.synchronize()
    back = bytearray(size)
    other.allocator._copyout(memoryview(back), there)
    return {"same": back == content, "arch": [device.arch, other.arch]}


def transfers(device: Any) -> dict[str, Any]:
    """From the first card to the second, each waited for."""
    other = Device["NV:1"]
    here, there = (each.allocator.alloc(BLOCK, BufferSpec(nolru=True)) for each in (device, other))
    content, back = bytearray(os.urandom(MIB) * (BLOCK // MIB)), bytearray(BLOCK)
    device.allocator._copyin(here, memoryview(content))
    device.synchronize()
    took_us = []
    for _ in range(20):
        began_ns = time.monotonic_ns()
        other.allocator._transfer(there, here, BLOCK, src_dev=device, dest_dev=other)
        other.synchronize()
        took_us.append((time.monotonic_ns() - began_ns) / 1000)
    other.allocator._copyout(memoryview(back), there)
    return {"same": back == content, "took_us": took_us}


def work(device: Any) -> Iterator[dict[str, Any]]:
    """Copies for as long as it is told to."""
    for seed, line in enumerate(sys.stdin):
        rounds = int(line)
        yield {"same": all(there_and_back(device, 8 * MIB, seed * 1000 + i) for i in range(rounds))}


def crossing(device: Any) -> Iterator[dict[str, Any]]:
    """To the second card by the first one's copies and back by the second's, from a line until the next."""
    other, size = Device["NV:1"], 16 * MIB
    options = BufferSpec(nolru=True)
    here, there = device.allocator.alloc(size, options), other.allocator.alloc(size, options)
    content = bytearray(os.urandom(MIB) * (size // MIB))
    device.allocator._copyin(here, memoryview(content))
    device.synchronize()
    sys.stdin.readline()
    told = select.poll()
    told.register(sys.stdin, select.POLLIN)
    while not told.poll(0):
        other.allocator._transfer(there, here, size, src_dev=device, dest_dev=other)
        other.synchronize()
        device.allocator._transfer(here, there, size, src_dev=other, dest_dev=device)
        device.synchronize()
    back = bytearray(size)
    device.allocator._copyout(memoryview(back), here)
    yield {"same": back == content}


def main() -> None:
    what = sys.argv[1]
    device = Device["NV"]
    if what in ("fill", "work", "crossing"):
        if what != "fill":
            print(json.dumps(opened(device)), flush=True)
        for said in globals()[what](device):
            print(json.dumps(said), flush=True)
            if what == "fill":
                sys.stdin.readline()
        return
    print(json.dumps({name: globals()[name](device) for name in sys.argv[1:]}))


main()
