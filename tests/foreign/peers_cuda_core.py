"""cuda.core, as it comes from PyPI, on the two cards of a container. Prints one JSON document."""

import json
from typing import Any

import numpy as np
from cuda.core import Device, DeviceMemoryResource, LegacyPinnedMemoryResource

SIZE = 3 << 20


def numbers(pool: DeviceMemoryResource) -> list[int]:
    return sorted(device.device_id for device in pool.peer_accessible_by)


def came_over(one: Device, other: Device, pool: DeviceMemoryResource) -> bool:
    """What the host puts onto the second card, the first copies to its own memory."""
    host = LegacyPinnedMemoryResource()
    sent, back = host.allocate(SIZE), host.allocate(SIZE)
    data = np.random.default_rng(1).integers(0, 256, SIZE, dtype=np.uint8)
    np.from_dlpack(sent).view(np.uint8)[:] = data
    other.set_current()
    theirs = other.create_stream()
    there = pool.allocate(SIZE, stream=theirs)
    there.copy_from(sent, stream=theirs)
    theirs.sync()
    one.set_current()
    ours = one.create_stream()
    here = one.allocate(SIZE, stream=ours)
    here.copy_from(there, stream=ours)
    here.copy_to(back, stream=ours)
    ours.sync()
    return bool((np.from_dlpack(back).view(np.uint8) == data).all())


def main() -> Any:
    one, other = Device(0), Device(1)
    one.set_current()
    other.set_current()
    pool = DeviceMemoryResource(other)
    before = numbers(pool)
    pool.peer_accessible_by = {one.device_id}
    given = numbers(pool)
    same = came_over(one, other, pool)
    pool.peer_accessible_by = set()
    return {
        "can": [one.can_access_peer(other), other.can_access_peer(one)],
        "peers": [before, given, numbers(pool)],
        "same": same,
    }


print(json.dumps(main()))
