"""What NVIDIA's driver takes of a card by itself: page tables, address spaces, channels."""

import ctypes
import errno
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from native_sched.daemon.engine_abi import Refused
from tests.native.nvidia_mediated import Tenant, World
from tests.native.retained_steps import CHANNEL, of_one_group
from tests.native.rm_params import (
    ADDRESS_SPACE,
    CARD_CONTEXT_MIB,
    CONTEXT_MIB,
    GROUP,
    HOPPER,
    MEMORY,
    MEMORY_SYSTEM,
    MIB,
    ROOT,
    SPACE_MIB,
    VIRTUAL,
    channel,
    group,
    host_memory,
    memory,
)
from tests.support import rm_numbers as nv

OK, NO_MEMORY = 0, nv.NV_ERR_NO_MEMORY
KIB, GIB, TIB = 1 << 10, 1 << 30, 1 << 40
LAZY, VIRTUAL_FLAG = nv.NVOS32_ALLOC_FLAGS_LAZY, nv.NVOS32_ALLOC_FLAGS_VIRTUAL
EXTERNALLY_MANAGED, SPARSE = nv.NVOS32_ALLOC_FLAGS_EXTERNALLY_MANAGED, nv.NVOS32_ALLOC_FLAGS_SPARSE
SPACE, COMPUTE, COPIES = 0x800, 0x801, 0x802
ATTACHED = nv.NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS
MAP_MEMORY_DMA_STATUS = 0x38
OFFSET_FIXED = 1 << 15
MAP_MEMORY_DMA = nv.NV_ESC_RM_MAP_MEMORY_DMA

# The directories of the formats, from the root: how many bits of an address index each, and what an entry
# takes.
FORMATS = {
    "VER2": [(47, 8), (38, 8), (29, 8), (21, 16)],
    "VER3": [(56, 8), (47, 8), (38, 8), (29, 8), (21, 16)],
}


def reserved(directories: list[tuple[int, int]], size: int, page_sizes: tuple[int, ...]) -> int:
    """kgmmuGetSizeOfPageDirs() and kgmmuGetSizeOfPageTables() for addresses from 0 on, in chunks of the
    pool's.
    """
    limit = size - 1
    total = 0
    for page in page_sizes:
        if limit >> 21:
            total += (-(-limit // (1 << 21)) + 1) * (2 * MIB // page * 8)
        else:
            total += (limit // page + 1) * 8
    for shift, entry in directories:
        total += -(-(-(-limit // (1 << shift)) + 1) * entry // 4096) * 4096
    return -(-total // (64 * KIB)) * 64 * KIB


@given(size=st.integers(1, 8 * GIB), pages=st.sampled_from([(4096,), (4096, 65536)]))
def test_reserved_tables_are_charged_for_every_format(
    core: ctypes.CDLL, size: int, pages: tuple[int, ...]
) -> None:
    core.nvidia_reserved_tables.restype = ctypes.c_uint64
    charged = core.nvidia_reserved_tables(ctypes.c_uint64(size))
    most = max(reserved(directories, size, pages) for directories in FORMATS.values())
    assert most <= charged
    if pages == (4096, 65536):
        assert charged - most <= 64 * KIB


def virtual(
    size: int, flags: int = 0, vaspace: int = SPACE, *, attributes: int = 0, huge_attributes: int = 0
) -> bytes:
    params = bytearray(memory(size))
    struct.pack_into("I", params, 8, VIRTUAL_FLAG | flags)
    struct.pack_into("II", params, 0x18, attributes, huge_attributes)
    struct.pack_into("I", params, 0x6C, vaspace)
    return bytes(params)


def make(tenant: Tenant, client: int, handle: int, class_id: int, params: bytes, parent: int = 0xD0) -> int:
    """The RM status."""
    answer = tenant.alloc(client, parent, handle, class_id, params)
    assert (answer.result, answer.through) == (0, False)
    return answer.u32(0x28)


def vaspace(tenant: Tenant, client: int, handle: int = SPACE) -> int:
    return make(tenant, client, handle, ADDRESS_SPACE, bytes(56))


def ready(here: World, cap_mib: int = 64) -> tuple[Tenant, int]:
    """A tenant with an address space, and its client."""
    tenant, client = here.tenant_client(cap_mib=cap_mib)
    assert vaspace(tenant, client) == OK
    assert here.used_mib(tenant) == SPACE_MIB
    return tenant, client


def test_tebibyte_of_virtual_memory_takes_no_tables(here: World) -> None:
    """The driver would make them with it, two GiB: it is asked not to, and the caller does not see that."""
    tenant, client = ready(here)
    answer = tenant.alloc(client, 0xD0, 0x100, VIRTUAL, virtual(TIB))
    assert (answer.result, answer.u32(0x28)) == (0, OK)
    assert here.virtual_flags == VIRTUAL_FLAG | LAZY
    assert struct.unpack_from("I", answer.params, 8) == (VIRTUAL_FLAG,)
    assert here.used_mib(tenant) == SPACE_MIB


@pytest.mark.parametrize("flags", [LAZY, EXTERNALLY_MANAGED, LAZY | EXTERNALLY_MANAGED])
def test_virtual_memory_without_tables_is_passed_as_it_is(here: World, flags: int) -> None:
    tenant, client = ready(here)
    answer = tenant.alloc(client, 0xD0, 0x100, VIRTUAL, virtual(64 * TIB, flags))
    assert (answer.result, answer.u32(0x28)) == (0, OK)
    assert here.virtual_flags == VIRTUAL_FLAG | flags
    assert struct.unpack_from("I", answer.params, 8) == (VIRTUAL_FLAG | flags,)
    assert here.used_mib(tenant) == SPACE_MIB


def test_refused_virtual_memory_leaves_arguments_unchanged(here: World) -> None:
    tenant, client = ready(here)
    answer = tenant.alloc(client, 0xD1, 0x100, VIRTUAL, virtual(TIB))
    assert answer.u32(0x28) != OK
    assert struct.unpack_from("I", answer.params, 8) == (VIRTUAL_FLAG,)
    assert here.used_mib(tenant) == SPACE_MIB


def test_memory_of_other_classes_is_passed_as_it_is(here: World) -> None:
    tenant, client = ready(here)
    params = bytearray(memory(MIB))
    struct.pack_into("I", params, 8, 0x11)
    answer = tenant.alloc(client, 0xD0, 0x100, MEMORY, bytes(params))
    assert answer.u32(0x28) == OK
    assert struct.unpack_from("I", answer.params, 8) == (0x11,)


@pytest.mark.parametrize("flags", [SPARSE, SPARSE | LAZY])
def test_sparse_memory_is_charged_what_its_tables_take(here: World, core: ctypes.CDLL, flags: int) -> None:
    core.nvidia_reserved_tables.restype = ctypes.c_uint64
    tables_mib = core.nvidia_reserved_tables(ctypes.c_uint64(8 * GIB)) / MIB
    tenant, client = ready(here, cap_mib=40)
    for handle in (0x100, 0x101):
        assert make(tenant, client, handle, VIRTUAL, virtual(8 * GIB, flags)) == OK
        assert here.virtual_flags == VIRTUAL_FLAG | flags
    assert here.used_mib(tenant) == SPACE_MIB + 2 * tables_mib
    assert make(tenant, client, 0x102, VIRTUAL, virtual(8 * GIB, flags)) == NO_MEMORY
    for handle in (0x100, 0x101):
        assert tenant.free(client, handle).u32(0xC) == OK
    assert here.used_mib(tenant) == SPACE_MIB


@pytest.mark.parametrize(
    ("size", "huge"), [(8 * GIB + 1, 0), ((1 << 64) - 1, 0), (MIB, 3 << 20), (TIB, 1 << 20)]
)
def test_sparse_memory_that_would_leave_much_in_the_pool_is_refused(
    here: World, size: int, huge: int
) -> None:
    """Whatever the cap: what is reserved stays in the card's pool when the call fails after that."""
    tenant, client = ready(here, cap_mib=100_000)
    params = virtual(size, SPARSE, attributes=3 << 23, huge_attributes=huge)
    assert make(tenant, client, 0x100, VIRTUAL, params) == NO_MEMORY
    assert here.used_mib(tenant) == SPACE_MIB


def test_devices_own_address_space_is_charged_on_first_use(here: World) -> None:
    tenant, client = ready(here)
    assert make(tenant, client, 0x100, VIRTUAL, virtual(TIB, vaspace=0)) == OK
    assert here.used_mib(tenant) == 2 * SPACE_MIB
    assert tenant.free(client, 0x100).u32(0xC) == OK
    assert here.used_mib(tenant) == SPACE_MIB


def test_address_spaces_end_at_the_cap(here: World) -> None:
    tenant, client = here.tenant_client(cap_mib=4)
    for number in range(64):
        assert vaspace(tenant, client, SPACE + number) == OK
    assert vaspace(tenant, client, SPACE + 64) == NO_MEMORY
    assert here.used_mib(tenant) == 4
    assert tenant.free(client, SPACE).u32(0xC) == OK
    assert vaspace(tenant, client, SPACE + 64) == OK
    assert tenant.free(client, 0xD0).u32(0xC) == OK
    assert here.used_mib(tenant) == 0


def test_group_is_charged_its_channels_instance_blocks_too(here: World) -> None:
    tenant, client = here.tenant_client(cap_mib=2 * CARD_CONTEXT_MIB + 1)
    assert make(tenant, client, 0x900, GROUP, group()) == OK
    assert make(tenant, client, 0x901, MEMORY_SYSTEM, host_memory(65536)) == OK
    for number in range(16):
        assert make(tenant, client, 0xA00 + number, HOPPER, channel(0x901), 0x900) == OK
    assert here.used_mib(tenant) == CONTEXT_MIB
    assert make(tenant, client, 0xB00, GROUP, group()) == NO_MEMORY
    assert tenant.free(client, 0x900).u32(0xC) == OK
    assert here.used_mib(tenant) == 0


def test_table_charges_survive_a_restart(here: World) -> None:
    tenant, client = ready(here)
    assert make(tenant, client, 0x100, VIRTUAL, virtual(GIB, SPARSE)) == OK
    before = here.used_mib(tenant)
    assert before > SPACE_MIB
    here.restart()
    assert here.used_mib(tenant) == before
    assert tenant.free(client, 0x100).u32(0xC) == OK
    assert tenant.free(client, SPACE).u32(0xC) == OK
    assert here.used_mib(tenant) == 0


@pytest.mark.parametrize("restarts", [False, True])
def test_audit_finds_memory_beside_the_drivers_own(here: World, restarts: bool) -> None:
    """It counts that to no process: so much memory without a charge is still too much."""
    tenant, client = ready(here)
    for number in range(1, 17):
        assert vaspace(tenant, client, SPACE + number) == OK
    assert tenant.free(client, SPACE + 16).u32(0xC) == OK
    if restarts:
        here.restart()
    flipped = struct.pack("IIIIQQIIII", client, 0xD0, 0x100, MEMORY, 0, 0, 128, 0, 0, 0)
    answer = tenant.alloc(0, 0, 0, ROOT, memory(MIB), flip=flipped)
    assert (answer.result, answer.through) == (0, True)
    assert tenant.control(client, client, ATTACHED, bytes(128)).result == -errno.EPERM
    assert here.engine.state(tenant.id).unaccounted_bytes == MIB


@pytest.mark.parametrize(
    ("memory_handle", "length", "kind"),
    [(0x101, 2 * MIB, Refused.FORM), (0x999, MIB, Refused.HANDLE), (0x100, MIB, Refused.HANDLE)],
)
def test_mapping_of_any_length_is_refused(
    here: World, memory_handle: int, length: int, kind: Refused
) -> None:
    """RM reserves tables for the length that the caller names before it looks at what is mapped."""
    tenant, client = ready(here)
    assert make(tenant, client, 0x100, VIRTUAL, virtual(MIB)) == OK
    assert make(tenant, client, 0x101, MEMORY, memory(MIB)) == OK
    outer = struct.pack("<4I2Q4IQII", client, 0xD0, 0x100, memory_handle, 0, length, 0, 0, 0, 0, 0, 0, 0)
    before = here.engine.refused(tenant.id)[kind]
    tenant.ioctl(tenant.ctl, MAP_MEMORY_DMA, outer)
    assert here.engine.refused(tenant.id)[kind] == before + 1


@pytest.mark.parametrize(
    ("handle", "length", "status"),
    [
        (COMPUTE, 4096, OK),
        (COMPUTE, 8192, nv.NV_ERR_INVALID_ARGUMENT),
        (COPIES, 4096, nv.NV_ERR_INVALID_OBJECT_HANDLE),
    ],
)
def test_page_of_what_a_channel_computes_with_is_mapped(
    here: World, handle: int, length: int, status: int
) -> None:
    """As Vulkan does on an H200: no memory, and the driver has it for the classes of compute alone."""
    tenant, client = of_one_group(here, here.tenant(cap_mib=2048))
    for class_id, params in ((nv.HOPPER_COMPUTE_A, bytes(16)), (nv.HOPPER_DMA_COPY_A, bytes(8))):
        made = COMPUTE if class_id == nv.HOPPER_COMPUTE_A else COPIES
        assert make(tenant, client, made, class_id, params, CHANNEL) == OK
    assert vaspace(tenant, client) == OK
    assert make(tenant, client, 0x100, VIRTUAL, virtual(MIB)) == OK
    before = here.used_mib(tenant)
    outer = struct.pack("<4I2Q4IQII", client, 0xD0, 0x100, handle, 0, length, 0, 0, 0, 0, 0, 0, 0)
    mapped = tenant.ioctl(tenant.ctl, MAP_MEMORY_DMA, outer)
    assert (mapped.result, mapped.u32(MAP_MEMORY_DMA_STATUS)) == (0, status)
    assert (here.used_mib(tenant) > before) == (status == OK)
    tenant.free(client, handle)
    assert here.used_mib(tenant) <= before


def mapping(client: int, length: int) -> bytes:
    return struct.pack(
        "<4I2Q4IQII", client, 0xD0, 0x100, 0x101, 0, length, OFFSET_FIXED, 0, 0, 0, 4 * GIB, 0, 0
    )


def test_answer_of_a_mapping_is_kept_for_a_call_sent_again(here: World) -> None:
    tenant, client = ready(here)
    assert make(tenant, client, 0x100, VIRTUAL, virtual(MIB)) == OK
    assert make(tenant, client, 0x101, MEMORY, memory(MIB)) == OK
    before = here.used_mib(tenant)
    first = tenant.ioctl(tenant.ctl, MAP_MEMORY_DMA, mapping(client, MIB))
    assert (first.result, first.u32(MAP_MEMORY_DMA_STATUS)) == (0, OK)
    once = here.used_mib(tenant)
    assert once > before
    again = tenant.ioctl(tenant.ctl, MAP_MEMORY_DMA, first.outer)
    assert (again.result, again.outer) == (0, first.outer)
    assert here.used_mib(tenant) == once, "not carried out a second time"
