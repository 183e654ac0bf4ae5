"""Runs in the container: fills every card it sees up to the cap, asks for one byte more, and goes on.

Speaks the CUDA driver API alone. Prints one JSON line per act, with one entry per card, and waits for a line
on stdin between the acts.
"""

import ctypes
import json
import sys
from typing import Any

CUDA_SUCCESS = 0
CUDA_ERROR_OUT_OF_MEMORY = 2
MIB = 1 << 20
AGAIN_BYTES = 64 * MIB

cuda = ctypes.CDLL("libcuda.so.1")
cuda.cuMemFree_v2.argtypes = [ctypes.c_uint64]
cuda.cuMemAlloc_v2.argtypes = [ctypes.POINTER(ctypes.c_uint64), ctypes.c_size_t]
cuda.cuCtxSetCurrent.argtypes = [ctypes.c_void_p]


def must(status: int, call: str) -> None:
    if status != CUDA_SUCCESS:
        sys.exit(f"{call}: CUDA error {status}")


def allocate(size_bytes: int) -> tuple[int, int]:
    """(CUDA status, device address)."""
    address = ctypes.c_uint64()
    status = int(cuda.cuMemAlloc_v2(ctypes.byref(address), size_bytes))
    return status, address.value


class Card:
    def __init__(self, ordinal: int) -> None:
        device, context, total = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_size_t()
        must(cuda.cuDeviceGet(ctypes.byref(device), ordinal), "cuDeviceGet")
        must(cuda.cuDeviceTotalMem_v2(ctypes.byref(total), device), "cuDeviceTotalMem")
        must(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device), "cuCtxCreate")
        self.context = context
        self.device_total_bytes = total.value
        self.blocks: list[int] = []
        self.taken_bytes = 0

    def fill(self) -> dict[str, Any]:
        """Allocate down to the last byte the card gives, in halving steps, and then ask for one more."""
        must(cuda.cuCtxSetCurrent(self.context), "cuCtxSetCurrent")
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        must(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)), "cuMemGetInfo")
        step = free.value
        while step:
            status, address = allocate(step)
            if status == CUDA_SUCCESS:
                self.blocks.append(address)
                self.taken_bytes += step
            elif status == CUDA_ERROR_OUT_OF_MEMORY:
                step //= 2
            else:
                must(status, "cuMemAlloc")
        return {
            "device_total_bytes": self.device_total_bytes,
            "total_bytes": total.value,
            "free_bytes": free.value,
            "taken_bytes": self.taken_bytes,
            "one_byte_more": allocate(1)[0],
        }

    def go_on(self) -> dict[str, Any]:
        """Free everything, and allocate again as if nothing had happened."""
        must(cuda.cuCtxSetCurrent(self.context), "cuCtxSetCurrent")
        for address in self.blocks:
            must(cuda.cuMemFree_v2(address), "cuMemFree")
        return {"again": allocate(AGAIN_BYTES)[0]}


def main() -> None:
    count = ctypes.c_int()
    must(cuda.cuInit(0), "cuInit")
    must(cuda.cuDeviceGetCount(ctypes.byref(count)), "cuDeviceGetCount")
    cards = [Card(ordinal) for ordinal in range(count.value)]
    print(json.dumps([card.fill() for card in cards]), flush=True)
    sys.stdin.readline()
    print(json.dumps([card.go_on() for card in cards]), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
