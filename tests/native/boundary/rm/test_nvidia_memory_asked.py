"""Memory that RM would make larger than it is asked for, and more of the host's than there is: both are known
before the driver is asked.
"""

import ctypes
import struct
from collections.abc import Callable

import pytest

from tests.native.nvidia_mediated import Tenant, World
from tests.native.rm_params import MEMORY, MEMORY_SYSTEM, MIB, memory
from tests.support import rm_numbers as nv

OK, STATUS, NO_MEMORY = 0, 0x28, nv.NV_ERR_NO_MEMORY
BY_SIZE, SMALL, BIG, HUGE = range(4)
OF_2_MIB, OF_512_MIB, OF_256_GIB = 1, 2, 3
ALLOC_SIZE, HOST, OS_DESCRIPTOR = nv.NVOS32_FUNCTION_ALLOC_SIZE, 1, nv.NV01_MEMORY_SYSTEM_OS_DESCRIPTOR
TIB = 1 << 40


def reached(here: World) -> int:
    """How many of them the driver was asked for."""
    return ctypes.c_uint32.in_dll(here.lib, "on_card_memory").value


def by_alloc(tenant: Tenant, client: int, size: int, attr: int, attr2: int) -> int:
    """By its class."""
    params = bytearray(memory(size))
    struct.pack_into("II", params, 0x18, attr, attr2)
    host = attr >> 25 & 3 == HOST
    return tenant.alloc(client, 0xD0, 0x100, MEMORY_SYSTEM if host else MEMORY, bytes(params)).u32(STATUS)


def by_heap(tenant: Tenant, client: int, size: int, attr: int, attr2: int) -> int:
    outer = bytearray(184)
    struct.pack_into("3I", outer, 0, client, 0xD0, ALLOC_SIZE)
    struct.pack_into("I", outer, 0x28, 1)
    struct.pack_into("I", outer, 0x38, attr)
    struct.pack_into("Q", outer, 0x58, size)
    struct.pack_into("I", outer, 0x90, attr2)
    return tenant.ioctl(tenant.ctl, nv.NV_ESC_RM_VID_HEAP_CONTROL, bytes(outer)).u32(0x14)


Asked = Callable[[Tenant, int, int, int, int], int]
ROADS = pytest.mark.parametrize("asked", [by_alloc, by_heap])


@ROADS
@pytest.mark.parametrize(
    ("size", "pages", "huge", "rounded"),
    [
        (1, BY_SIZE, 0, MIB >> 4),
        (2 * MIB + 1, BY_SIZE, 0, 4 * MIB),
        (1, SMALL, 0, MIB >> 4),
        (1, BIG, 0, MIB >> 4),
        (1, HUGE, 0, 2 * MIB),
        (1, HUGE, OF_2_MIB, 2 * MIB),
        (2 * MIB + 1, HUGE, OF_2_MIB, 4 * MIB),
        (1, HUGE, OF_512_MIB, 512 * MIB),
        (512 * MIB + 1, HUGE, OF_512_MIB, 1024 * MIB),
    ],
)
def test_memory_is_set_aside_by_the_pages_that_are_asked_for(
    here: World, asked: Asked, size: int, pages: int, huge: int, rounded: int
) -> None:
    tenant = here.tenant(cap_mib=max(1, rounded // MIB - 1))
    got = asked(tenant, tenant.client(), size, pages << 23, huge << 20)
    fits = rounded < MIB
    assert (got, reached(here)) == ((OK, 1) if fits else (NO_MEMORY, 0))
    assert here.used_mib(tenant) * MIB == (rounded if fits else 0)


def test_pages_of_256_gib_fit_no_smaller_cap(here: World) -> None:
    tenant = here.tenant(cap_mib=65536)
    assert by_alloc(tenant, tenant.client(), 1, HUGE << 23, OF_256_GIB << 20) == NO_MEMORY
    assert reached(here) == 0


@ROADS
def test_more_memory_of_the_hosts_than_it_has_is_not_asked_for(here: World, asked: Asked) -> None:
    tenant, client = here.tenant_client()
    assert asked(tenant, client, 64 * TIB, HOST << 25, 0) == NO_MEMORY
    assert reached(here) == 0
    assert asked(tenant, client, 65536, HOST << 25, 0) == OK
    assert reached(here) == 1
    assert here.used_mib(tenant) == 0


def test_more_pages_of_the_callers_than_the_host_has_are_not_pinned(here: World) -> None:
    tenant, client = here.tenant_client()
    for limit, through in ((64 * TIB - 1, False), (65535, True)):
        outer = struct.pack(
            "6I2QIIiI", client, 0xD0, 0x100, OS_DESCRIPTOR, 0x40001010, 0, 1 << 20, limit, 0, 0, -1, 0
        )
        answer = tenant.ioctl(tenant.card, nv.NV_ESC_RM_ALLOC_MEMORY, outer)
        assert answer.through is through
        if not through:
            assert answer.u32(0x28) == NO_MEMORY
