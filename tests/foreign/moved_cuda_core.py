"""cuda.core, as it comes from PyPI, in a container that is moved to another card.

Prints a digest of all that it has there and the UUID of its device by CUDA, and both again for each line.
"""

import hashlib
import json
import sys
from typing import Any

import numpy as np
from cuda.bindings import driver
from cuda.core import Device, DeviceMemoryResource, DeviceMemoryResourceOptions

MIB = 1 << 20
SIZES_MIB = 1, 24, 48


def check(answer: tuple[Any, ...]) -> Any:
    assert answer[0] == driver.CUresult.CUDA_SUCCESS, answer[0]
    return answer[1] if len(answer) == 2 else answer[1:]


card = Device(0)
card.set_current()
stream = card.create_stream()
pool = DeviceMemoryResource(card, options=DeviceMemoryResourceOptions(max_size=128 * MIB))
held = [pool.allocate(size * MIB, stream=stream) for size in SIZES_MIB]
stream.sync()
for buffer in held:
    data = np.random.default_rng(buffer.size).integers(0, 256, buffer.size, dtype=np.uint8)
    check(driver.cuMemcpyHtoD(int(buffer.handle), data, buffer.size))


def look() -> list[str]:
    seen = hashlib.sha256()
    for buffer in held:
        back = np.zeros(buffer.size, dtype=np.uint8)
        check(driver.cuMemcpyDtoH(back, int(buffer.handle), buffer.size))
        seen.update(back.tobytes() + repr(int(buffer.handle)).encode())
    return [seen.hexdigest(), f"GPU-{check(driver.cuDeviceGetUuid(0)).bytes.hex()}"]


print(json.dumps(look()), flush=True)
for _ in sys.stdin:
    more = pool.allocate(MIB, stream=stream)
    stream.sync()
    more.close(stream)
    print(json.dumps(look()), flush=True)
