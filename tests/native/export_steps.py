"""Steps of two processes of which one exports memory to the other."""

import struct

from tests.native.nvidia_mediated import Answer, Tenant, World
from tests.native.rm_params import (
    MEMORY,
    MEMORY_SYSTEM,
    MIB,
    SHARE,
    host_memory,
    memory,
)
from tests.support import rm_numbers as nv

OK, NOT_PERMITTED, INVALID_CLIENT = 0, nv.NV_ERR_INSUFFICIENT_PERMISSIONS, nv.NV_ERR_INVALID_CLIENT
INVALID_PARAMETER = nv.NV_ERR_INVALID_PARAMETER

DUP_OBJECT, STATUS, HANDLE, OTHER = nv.NV_ESC_RM_DUP_OBJECT, 0x1C, 0x100, 0x101

DEVICE = 0xD0

FOR_ALL = 1

SIZE = 48 * MIB


def allocate(
    tenant: Tenant, client: int, handle: int = HANDLE, size: int = SIZE, class_id: int = MEMORY
) -> int:
    params = host_memory(size) if class_id == MEMORY_SYSTEM else memory(size)
    answer = tenant.alloc(client, DEVICE, handle, class_id, params)
    assert (answer.result, answer.through) == (0, False)
    return answer.u32(0x28)


def control(tenant: Tenant, client: int, command: int, params: bytes) -> tuple[int, bytes]:
    """The RM status, and the parameters afterwards."""
    answer = tenant.control(client, client, command, params)
    assert (answer.result, answer.through) == (0, False)
    return answer.u32(STATUS), answer.params


def free(tenant: Tenant, client: int, handle: int = HANDLE) -> int:
    return tenant.free(client, handle).u32(0xC)


def share(
    tenant: Tenant, client: int, handle: int, to: int, *, target: int = 0, action: int = 0, mask: int = 1
) -> int:
    outer = struct.pack("IIIIHBxI", client, handle, target, mask, to, action, 0)
    answer = tenant.ioctl(tenant.ctl, SHARE, outer)
    assert answer.result == 0
    return answer.u32(0x14)


def duplicate(tenant: Tenant, client: int, source: int, handle: int = HANDLE, name: int = OTHER) -> int:
    answer: Answer = tenant.ioctl(
        tenant.ctl, DUP_OBJECT, struct.pack("7I", client, DEVICE, name, source, handle, 0, 0)
    )
    assert answer.result == 0
    return answer.u32(0x18)


def pair(here: World, cap_mib: int = 64) -> tuple[Tenant, int, Tenant, int]:
    """Two processes of one container that may have 64 MiB, each with a client; the first has 48."""
    first = here.tenant(cap_mib=cap_mib)
    second = here.mate(first)
    clients = first.client(), second.client()
    assert allocate(first, clients[0]) == OK
    return first, clients[0], second, clients[1]
