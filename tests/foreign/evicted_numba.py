"""numba, as it comes from PyPI, in a container whose memory of the card is moved away and back.

Prints the sum over all of its memory, and again for each line of its input, after some more work.
"""

import hashlib
import json
import subprocess
import sys

import numpy as np
from numba import cuda

MIB = 1 << 20
SIZES_MIB = 1, 16, 64

# A second process of the container, which knows nothing of the card.
other = subprocess.Popen(["sleep", "1000"])

parts = [np.random.default_rng(size).integers(0, 256, size * MIB, dtype=np.uint8) for size in SIZES_MIB]
held = [cuda.to_device(part) for part in parts]
pinned = cuda.pinned_array(MIB, dtype=np.uint8)
pinned[:] = 3
stream, began, ended = cuda.stream(), cuda.event(), cuda.event()
began.record(stream)
held[0].copy_to_host(parts[0], stream)
ended.record(stream)
stream.synchronize()
elapsed_ms = began.elapsed_time(ended)


def look() -> str:
    """The bytes, where they are, and what lies between two events that were recorded at the start."""
    seen = hashlib.sha256()
    for array in held:
        seen.update(array.copy_to_host().tobytes())
    seen.update(pinned.tobytes())
    seen.update(repr([array.device_ctypes_pointer.value for array in held]).encode())
    assert began.elapsed_time(ended) == elapsed_ms
    assert other.poll() is None
    return seen.hexdigest()


print(json.dumps(look()), flush=True)
for _ in sys.stdin:
    more = cuda.to_device(pinned, stream=stream)
    assert (more.copy_to_host() == 3).all()
    del more
    cuda.current_context().memory_manager.deallocations.clear()
    print(json.dumps(look()), flush=True)
other.kill()
other.wait()
