"""What the tests' containers do with tinygrad's NV backend: `python3 -m lab.guest.by_tinygrad VERB`

NV0000_CTRL_SYSTEM_GET_BUILD_VERSION_V2_PARAMS has 776 bytes in 535 and 550. tinygrad from 0.12 on asks with
1032, which they refuse, so it is 0.11 here, which does not ask.
"""

import os
import sys
import time

# The one that is tested is no dependency of ours.
from tinygrad.device import BufferSpec, Device  # type: ignore[import-not-found,unused-ignore]

from lab.guest.inside import tell

MIB = 1 << 20


def fill() -> None:
    """There and back, all that there is, and there and back again."""
    device = Device["NV"]
    first, held = _there_and_back(device), []
    try:
        while True:
            held.append(device.allocator.alloc(64 * MIB, BufferSpec(nolru=True)))
    except MemoryError:
        pass
    count = len(held)
    for buffer in held:
        device.allocator.free(buffer, 64 * MIB, BufferSpec(nolru=True))
    tell(arch=device.arch, same=first, held_mib=64 * count, after=_there_and_back(device))


def copy() -> None:
    """Ever again, and says how often."""
    device = Device["NV"]
    buffer = device.allocator.alloc(16 * MIB, BufferSpec(nolru=True))
    data = memoryview(bytearray(16 * MIB))
    for number in range(1_000_000):
        device.allocator._copyin(buffer, data)
        device.synchronize()
        tell(copies=number, at_s=time.monotonic())


def _there_and_back(device: object) -> bool:
    data, back = bytearray(os.urandom(MIB)), bytearray(MIB)
    buffer = device.allocator.alloc(MIB, BufferSpec(nolru=True))  # type: ignore[attr-defined]
    device.allocator._copyin(buffer, memoryview(data))  # type: ignore[attr-defined]
    device.allocator._copyout(memoryview(back), buffer)  # type: ignore[attr-defined]
    device.allocator.free(buffer, MIB, BufferSpec(nolru=True))  # type: ignore[attr-defined]
    return back == data


if __name__ == "__main__":
    {"fill": fill, "copy": copy}[sys.argv[1]]()
