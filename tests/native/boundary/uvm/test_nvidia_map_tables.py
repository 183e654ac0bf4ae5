"""External mappings of nvidia-uvm: their page tables count against the cap, and are given back to the
byte."""

import errno
import struct
from itertools import count

import pytest

from native_sched.daemon.engine_abi import MemoryKind
from tests.native.external_steps import (
    HANDLE,
    MAP_STATUS,
    NO_MEMORY,
    OK,
    free_mapping,
    map_range,
    unmap_range,
)
from tests.native.nvidia_mediated import Tenant, World
from tests.native.page_tables import BIG_PAGE, HUGE_PAGE, Mapped, charged_bytes
from tests.native.rm_params import MEMORY, MEMORY_SYSTEM, MIB, ROOT, UVM_MAP_EXTERNAL, host_memory, memory
from tests.native.uvm_params import GPU_ONE, GPU_TWO, map_external
from tests.support.rm_numbers import NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS, UVM_MAP_EXTERNAL_SPARSE

ATTACHED = NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS
TIB = 1 << 40
BASE, SIZE = 16 * TIB, 48 * TIB
BY_PAGE = {4096: 1 << 23, BIG_PAGE: 2 << 23, HUGE_PAGE: 3 << 23}


@pytest.fixture
def here(here: World) -> World:
    here.range(BASE, SIZE)
    return here


def paged(size: int, page: int) -> bytes:
    params = bytearray(memory(size))
    struct.pack_into("I", params, 0x18, BY_PAGE[page])
    return bytes(params)


def owner(here: World, page: int = 4096, *, cap_mib: int = 64, size: int = 8 * MIB) -> tuple[Tenant, int]:
    """A tenant with memory of that page size, and its client."""
    tenant, client = here.tenant_client(cap_mib=cap_mib)
    assert tenant.alloc(client, 0xD0, HANDLE, MEMORY, paged(size, page)).u32(0x28) == OK
    return tenant, client


def bytes_of_tables(here: World, tenant: Tenant) -> float:
    return here.tables_mib(tenant) * MIB


@pytest.mark.parametrize("page", BY_PAGE)
def test_tables_follow_the_page_size_of_the_mapping(here: World, page: int) -> None:
    tenant, client = owner(here, page)
    map_range(tenant, map_external(client, HANDLE, BASE, 8 * MIB))
    assert bytes_of_tables(here, tenant) == charged_bytes([Mapped(0, BASE, 8 * MIB, page)])
    assert unmap_range(tenant, BASE, 8 * MIB) == OK
    assert here.used_mib(tenant) == 8


@pytest.mark.parametrize("kind", [MemoryKind.ONLINE, MemoryKind.RECLAIMABLE])
def test_card_that_lends_memory_follows_its_tables(here: World, kind: MemoryKind) -> None:
    tenant, client = owner(here)
    here.engine.memory(tenant.id, kind)
    for _ in range(2):
        map_range(tenant, map_external(client, HANDLE, BASE, 8 * MIB))
        held = 8 * MIB + bytes_of_tables(here, tenant)
        assert here.engine.card_memory(0).taken_bytes == held > 8 * MIB
        assert unmap_range(tenant, BASE, 8 * MIB) == OK
        assert here.engine.card_memory(0).taken_bytes == 8 * MIB


def test_smaller_pages_take_more_tables(here: World) -> None:
    """An offset decides too: what is known already by other pages is another mapping."""
    tenant, client = owner(here, HUGE_PAGE, size=16 * MIB)
    for offset, page in ((0, HUGE_PAGE), (4096, 4096), (BIG_PAGE, BIG_PAGE), (0, HUGE_PAGE)):
        for _ in range(2):
            map_range(tenant, map_external(client, HANDLE, BASE, 8 * MIB, offset=offset))
            assert bytes_of_tables(here, tenant) == charged_bytes([Mapped(0, BASE, 8 * MIB, page)])


def test_each_gpu_has_its_own_tables(here: World) -> None:
    tenant, client = owner(here)
    one = charged_bytes([Mapped(0, BASE, 4096)])
    map_range(tenant, map_external(client, HANDLE, BASE, 4096, (GPU_ONE, GPU_TWO)))
    assert bytes_of_tables(here, tenant) == 2 * one
    assert unmap_range(tenant, BASE, 4096, GPU_TWO) == OK
    assert bytes_of_tables(here, tenant) == one


def test_small_mappings_far_apart_end_at_the_cap(here: World) -> None:
    """Each has tables of its own, for a page of memory that all have in common."""
    tenant, client = owner(here, cap_mib=9)
    taken: list[Mapped] = []
    for number in count():
        one = Mapped(0, BASE + (number << 38), 4096)
        answer = tenant.uvm_call(UVM_MAP_EXTERNAL, map_external(client, HANDLE, one.base, 4096))
        assert (answer.result, answer.through) == (0, False)
        if answer.u32(MAP_STATUS) == NO_MEMORY:
            break
        assert answer.u32(MAP_STATUS) == OK
        taken.append(one)
    assert bytes_of_tables(here, tenant) == charged_bytes(taken) <= MIB < charged_bytes([*taken, one])
    assert unmap_range(tenant, taken[0].base, 4096) == OK
    map_range(tenant, map_external(client, HANDLE, one.base, 4096))
    here.restart()
    assert bytes_of_tables(here, tenant) == charged_bytes([*taken[1:], one])
    assert free_mapping(tenant, BASE, SIZE) == OK
    assert here.used_mib(tenant) == 8
    assert tenant.free(client, HANDLE).u32(0xC) == OK
    assert here.used_mib(tenant) == 0


def test_refused_mapping_is_charged_no_tables(here: World) -> None:
    tenant, client = owner(here)
    map_range(tenant, map_external(client, HANDLE, BASE, 4096))
    before = here.used_mib(tenant)
    for base, gpus in ((BASE - 8 * MIB, (GPU_ONE,)), (BASE, (GPU_ONE, bytes(16)))):
        refused = tenant.uvm_call(UVM_MAP_EXTERNAL, map_external(client, HANDLE, base, 8 * MIB, gpus))
        assert (refused.result, refused.u32(MAP_STATUS) != OK) == (0, True)
        assert here.used_mib(tenant) == before


def test_part_of_a_mapping_can_be_unmapped_at_a_nearly_full_cap(here: World) -> None:
    """What is left on both sides is charged as two mappings."""
    tenant, client = owner(here, size=96 * MIB, cap_mib=97)
    map_range(tenant, map_external(client, HANDLE, BASE, 96 * MIB))
    free = (97 << 20) - int(here.used_mib(tenant) * MIB)
    assert tenant.alloc(client, 0xD0, HANDLE + 1, MEMORY, memory(free // 65536 * 65536)).u32(0x28) == OK
    assert unmap_range(tenant, BASE + 48 * MIB, 4 * MIB) == OK
    left = [Mapped(0, BASE, 48 * MIB), Mapped(0, BASE + 52 * MIB, 44 * MIB)]
    assert bytes_of_tables(here, tenant) == charged_bytes(left)


def test_mapping_counts_as_a_whole_where_its_pieces_would_pass_the_cap(here: World) -> None:
    tenant, client = owner(here, cap_mib=9)
    map_range(tenant, map_external(client, HANDLE, BASE, 8 * MIB))
    for number in count(1):
        params = map_external(client, HANDLE, BASE + (number << 38), 4096)
        if tenant.uvm_call(UVM_MAP_EXTERNAL, params).u32(MAP_STATUS) != OK:
            break
    full = here.used_mib(tenant)
    for _ in range(2):
        assert unmap_range(tenant, BASE + 4 * MIB, 4096) == OK
        assert here.used_mib(tenant) == full
        here.restart()
    assert tenant.free(client, HANDLE).u32(0xC) == OK
    assert free_mapping(tenant, BASE, SIZE) == OK
    assert here.used_mib(tenant) == 0


def test_memory_of_the_hosts_is_mapped_and_its_tables_are_charged(here: World) -> None:
    """libcuda maps what its channels and the program share with the card in the same way."""
    tenant, client = here.tenant_client(cap_mib=9)
    assert tenant.alloc(client, 0xD0, HANDLE, MEMORY_SYSTEM, host_memory(65536)).u32(0x28) == OK
    whole = [Mapped(0, BASE + number * TIB, 65536) for number in range(4)]
    for one in whole:
        map_range(tenant, map_external(client, HANDLE, one.base, one.size))
    assert here.mapped == HANDLE
    assert here.used_mib(tenant) * MIB == charged_bytes(whole)
    # The tables are there for as long as the mapping.
    assert tenant.free(client, HANDLE).u32(0xC) == OK
    here.restart()
    assert here.used_mib(tenant) * MIB == charged_bytes(whole)
    for one in whole:
        assert unmap_range(tenant, one.base, one.size) == OK
    assert here.used_mib(tenant) == 0


def test_audit_finds_memory_beside_table_charges(here: World) -> None:
    """The driver counts them to no process: as much memory without a charge is still too much."""
    tenant, client = owner(here)
    for number in range(100):
        map_range(tenant, map_external(client, HANDLE, BASE + (number << 38), 4096))
    assert here.tables_mib(tenant) > 1
    flipped = struct.pack("IIIIQQIIII", client, 0xD0, 0x200, MEMORY, 0, 0, 128, 0, 0, 0)
    answer = tenant.alloc(0, 0, 0, ROOT, memory(MIB), flip=flipped)
    assert (answer.result, answer.through) == (0, True)
    assert tenant.control(client, client, ATTACHED, bytes(128)).result == -errno.EPERM
    assert here.engine.state(tenant.id).unaccounted_bytes == MIB


def test_sparse_mapping_is_refused(here: World) -> None:
    tenant, _client = owner(here)
    params = struct.pack("QQ16sII", BASE, SIZE, GPU_ONE, 0, 0)
    answer = tenant.uvm_call(UVM_MAP_EXTERNAL_SPARSE, params)
    assert (answer.result, answer.through) == (-errno.EPERM, False)
