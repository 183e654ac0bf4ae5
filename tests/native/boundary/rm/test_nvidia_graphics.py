"""Graphics: what gVisor's nvproxy lists for it, what it takes of the card, the older calls by which its
libraries ask, and that nothing of it is a container's without the driver capability.
"""

import struct
from pathlib import Path

import pytest

from native_sched.daemon.engine_abi import Refused
from tests.native.by_capability import INTERFACE, KINDS, VERSIONS, branch, listed, rows, served_to_all
from tests.native.nvidia_mediated import Tenant, World, world
from tests.native.rm_params import (
    ADDRESS_SPACE,
    CONTEXT_MIB,
    GROUP,
    HOPPER,
    MEMORY,
    MEMORY_SYSTEM,
    MIB,
    SPACE_MIB,
    channel,
    group,
    host_memory,
    memory,
)
from tests.support import rm_numbers
from tests.support import rm_numbers as nv
from tests.support.rm_interface import Item

STATUS_AT, MADE_STATUS_AT = 0x1C, 0x28
DEVICE, SUBDEVICE, PARENT, CHANNEL, SEMAPHORES = 0xD0, 0xD1, 0x50, 0x52, 0x60
# Of displays, of accounts of all, and of the firmware: reasons.tsv says why not.
NOT_SERVED = {
    "NV04_DISPLAY_COMMON",
    "GF100_DISP_SW",
    "GF100_SUBDEVICE_INFOROM",
    "NV0000_CTRL_CMD_GPUACCT_GET_ACCOUNTING_STATE",
    "NV2080_CTRL_CMD_GPU_GET_NVENC_SW_SESSION_STATS",
    "NV2080_CTRL_CMD_GPU_GET_NVFBC_SW_SESSION_STATS",
    "NV2080_CTRL_CMD_BUS_GET_PEX_COUNTERS",
    "NV2080_CTRL_CMD_BUS_GET_PEX_UTIL_COUNTERS",
    "NV90E7_CTRL_CMD_BBX_GET_LAST_FLUSH_TIME",
    "NV9096_CTRL_CMD_SET_ZBC_COLOR_CLEAR",
}
# Tables for 512 MiB by the smallest pages.
TABLES_MIB = 1.125
VIRTUAL, SPARSE, PROVIDED = 1 << 19, 1 << 26, 1 << 14


def drawing(here: World, cap_mib: int = 2048) -> Tenant:
    tenant = here.tenant(cap_mib=cap_mib)
    here.engine.capabilities(tenant.id, ["graphics"])
    return tenant


def makes(tenant: Tenant, client: int, parent: int, handle: int, class_id: int, params: bytes = b"") -> int:
    return tenant.alloc(client, parent, handle, class_id, params).u32(MADE_STATUS_AT)


def with_channel(tenant: Tenant) -> int:
    client = tenant.client()
    assert makes(tenant, client, DEVICE, PARENT, GROUP, group()) == 0
    assert makes(tenant, client, PARENT, CHANNEL, HOPPER, channel(0)) == 0
    return client


def tried(tenant: Tenant, client: int, item: Item, version: str) -> int:
    """RM's status for a call by that row: most classes are of another card."""
    if item in INTERFACE.classes:
        size = INTERFACE.size_at(item.size, branch(version)) or 0
        of_card = {nv.NV_SEMAPHORE_SURFACE, nv.GF100_ZBC_CLEAR, nv.NV_MEMORY_MAPPER, nv.NV01_CONTEXT_DMA}
        parent = SUBDEVICE if item.number in of_card else CHANNEL
        return makes(tenant, client, parent, item.number | 1 << 16, item.number, bytes(size))
    of = {0: client, nv.NV01_DEVICE_0: DEVICE, nv.NV20_SUBDEVICE_0: SUBDEVICE}.get(
        item.number >> 16, CHANNEL
    )
    params = struct.pack("II", client, CHANNEL).ljust(1024, b"\0")
    return tenant.control(client, of, item.number, params).u32(STATUS_AT)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_nvproxy_has_for_graphics_reaches_the_driver(tmp_path: Path, version: str) -> None:
    """Of a share, and not without the capability: then it is what the row says."""
    items = rows("graphics", version)
    for kind, of in KINDS.items():
        served = {item.number for item in items if item in of} | served_to_all(kind, version)
        assert {
            name for number, name in listed("graphics", kind, version).items() if number not in served
        } <= NOT_SERVED
    with world(tmp_path, version=version) as here:
        tenant = here.tenant()
        client, before = with_channel(tenant), here.engine.refused(tenant.id)[Refused.SHARE]
        said = {item.name: tried(tenant, client, item, version) for item in items}
        assert said == {item.name: rm_numbers.by_symbol()[item.status] for item in items}
        assert here.engine.refused(tenant.id)[Refused.SHARE] == before + len(items)
        here.engine.capabilities(tenant.id, ["graphics"])
        before = here.engine.refused(tenant.id)[Refused.SHARE]
        said = {item.name: tried(tenant, client, item, version) for item in items}
        assert here.engine.refused(tenant.id)[Refused.SHARE] == before
        assert (said["HOPPER_A"], said["FERMI_TWOD_A"]) == (0, 0)
        assert len(items) > 25


@pytest.mark.parametrize("class_id", [nv.HOPPER_A, nv.FERMI_TWOD_A])
def test_tables_of_shared_buffers_are_charged(here: World, class_id: int) -> None:
    tenant = drawing(here)
    client = with_channel(tenant)
    before = here.used_mib(tenant)
    assert makes(tenant, client, CHANNEL, 0x61, class_id, bytes(16)) == 0
    assert here.used_mib(tenant) == before + TABLES_MIB
    assert makes(tenant, client, CHANNEL, 0x62, nv.KEPLER_INLINE_TO_MEMORY_B, bytes(16)) == 0
    assert here.used_mib(tenant) == before + TABLES_MIB
    assert tenant.free(client, 0x61).u32(0xC) == 0
    assert here.used_mib(tenant) == before


def test_no_object_of_graphics_is_made_above_the_cap(here: World) -> None:
    tenant = drawing(here, 512)
    client = with_channel(tenant)
    left = int(512 - here.used_mib(tenant)) & ~1
    assert makes(tenant, client, DEVICE, 0x61, MEMORY, memory(left * MIB)) == 0
    assert 512 - here.used_mib(tenant) > TABLES_MIB / 2
    assert makes(tenant, client, CHANNEL, 0x63, nv.HOPPER_A, bytes(16)) == 0
    assert makes(tenant, client, CHANNEL, 0x62, nv.HOPPER_A, bytes(16)) == nv.NV_ERR_NO_MEMORY


def context_dma(tenant: Tenant, client: int, memory_handle: int, class_id: int = nv.NV01_CONTEXT_DMA) -> int:
    outer = struct.pack("<8I2Q2I", client, 0, 0x71, class_id, 0, 0, memory_handle, 0, 0, 4095, 0, 0)
    return tenant.ioctl(tenant.ctl, nv.NV_ESC_RM_ALLOC_CONTEXT_DMA2, outer).u32(0x30)


def test_older_call_makes_context_dmas_of_own_memory_and_nothing_else(here: World) -> None:
    tenant, client = here.tenant_client()
    assert makes(tenant, client, DEVICE, 0x70, MEMORY_SYSTEM, host_memory(MIB)) == 0
    assert context_dma(tenant, client, 0x70) == nv.NV_ERR_INVALID_CLASS, "without the capability"
    here.engine.capabilities(tenant.id, ["graphics"])
    assert context_dma(tenant, client, 0x70, nv.HOPPER_A) == nv.NV_ERR_INVALID_CLASS
    assert context_dma(tenant, client, 0x70, MEMORY) == nv.NV_ERR_INVALID_CLASS
    assert context_dma(tenant, client, 0x7777) == nv.NV_ERR_OBJECT_NOT_FOUND
    assert context_dma(tenant, client, DEVICE) == nv.NV_ERR_OBJECT_NOT_FOUND
    assert context_dma(tenant, client + 1, 0x70) == nv.NV_ERR_OBJECT_NOT_FOUND
    assert context_dma(tenant, client, 0x70) == 0
    assert tenant.free(client, 0x71).u32(0xC) == 0


def heap(tenant: Tenant, client: int, flags: int, size: int, vaspace: int) -> tuple[int, int]:
    """ALLOC_SIZE: the status, and the flags that come back."""
    outer = bytearray(184)
    struct.pack_into("<4I", outer, 0, client, DEVICE, 2, vaspace)
    struct.pack_into("<4I", outer, 0x28, 1, 0x80, 0, flags | PROVIDED)
    struct.pack_into("<Q", outer, 0x58, size)
    answer = tenant.ioctl(tenant.ctl, nv.NV_ESC_RM_VID_HEAP_CONTROL, bytes(outer))
    return answer.u32(0x14), answer.u32(0x34)


def test_virtual_memory_by_the_older_call_is_made_as_by_alloc(here: World) -> None:
    """Without tables; where it reads as zeros they are charged, and above the cap it is not made."""
    tenant = drawing(here, 1024)
    client = tenant.client()
    assert makes(tenant, client, DEVICE, PARENT, ADDRESS_SPACE, bytes(56)) == 0
    before = here.used_mib(tenant)
    assert heap(tenant, client, VIRTUAL, 1 << 40, PARENT) == (0, VIRTUAL | PROVIDED)
    assert here.used_mib(tenant) == before
    assert tenant.free(client, 0x80).u32(0xC) == 0
    assert heap(tenant, client, VIRTUAL | SPARSE, 1 << 32, PARENT)[0] == 0
    assert here.used_mib(tenant) > before + 8
    assert tenant.free(client, 0x80).u32(0xC) == 0
    assert heap(tenant, client, VIRTUAL | SPARSE, 1 << 40, PARENT)[0] == nv.NV_ERR_NO_MEMORY
    assert here.used_mib(tenant) == before


def test_range_of_addresses_counts_with_its_flag_alone(here: World) -> None:
    """NVIDIA's libraries give all addresses without it, which ALLOC refuses."""
    tenant = drawing(here)
    client = tenant.client()
    outer = bytearray(184)
    struct.pack_into("<4I", outer, 0, client, DEVICE, 2, 0)
    struct.pack_into("<4I", outer, 0x28, 0x474C0000, 0x80, 0, PROVIDED)
    struct.pack_into("<Q", outer, 0x58, MIB)
    struct.pack_into("<2Q", outer, 0x80, 0, 2**64 - 1)
    answer = tenant.ioctl(tenant.ctl, nv.NV_ESC_RM_VID_HEAP_CONTROL, bytes(outer))
    assert answer.u32(0x14) == 0
    assert struct.unpack_from("<2Q", answer.outer, 0x80) == (0, 2**64 - 1)


def alloc_memory(tenant: Tenant, client: int, class_id: int) -> tuple[int, int]:
    """The status, and the limit that comes back."""
    outer = struct.pack("<6IQQIIiI", client, DEVICE, 0x81, class_id, 1 << 16, 0, 0, 0xFFFFFFFF, 0, 0, -1, 0)
    answer = tenant.ioctl(tenant.card, nv.NV_ESC_RM_ALLOC_MEMORY, outer)
    return answer.u32(0x28), int(struct.unpack_from("<Q", answer.outer, 0x20)[0])


@pytest.mark.parametrize(
    ("class_id", "limit"), [(MEMORY, 512 * MIB - 1), (nv.NV01_MEMORY_LOCAL_PRIVILEGED, 0xFFFFFFFF)]
)
def test_older_call_names_nothing_of_the_card(here: World, class_id: int, limit: int) -> None:
    """Neither its memory, of which it tells the cap, nor its registers."""
    tenant = drawing(here, 512)
    client = tenant.client()
    before = here.used_mib(tenant)
    assert alloc_memory(tenant, client, class_id) == (0, limit)
    assert here.used_mib(tenant) == before
    assert tenant.free(client, 0x81).u32(0xC) == 0
    assert here.engine.state(tenant.id).unaccounted_bytes == 0


def test_address_space_has_a_name_in_another_client(here: World) -> None:
    """One charge, which ends with the last of them; not another container's."""
    tenant = drawing(here)
    client, other = tenant.client(), tenant.client()
    before = here.used_mib(tenant)
    assert makes(tenant, client, DEVICE, PARENT, ADDRESS_SPACE, bytes(56)) == 0
    outer = struct.pack("<7I", other, DEVICE, 0x91, client, PARENT, 0, 0)
    assert tenant.ioctl(tenant.ctl, nv.NV_ESC_RM_DUP_OBJECT, outer).u32(0x18) == 0
    assert here.used_mib(tenant) == before + SPACE_MIB
    assert tenant.free(client, PARENT).u32(0xC) == 0
    assert here.used_mib(tenant) == before + SPACE_MIB
    stranger = drawing(here)
    theirs = stranger.client()
    taken = struct.pack("<7I", theirs, DEVICE, 0x91, other, 0x91, 0, 0)
    assert (
        stranger.ioctl(stranger.ctl, nv.NV_ESC_RM_DUP_OBJECT, taken).u32(0x18)
        == nv.NV_ERR_INSUFFICIENT_PERMISSIONS
    )
    assert tenant.free(other, 0x91).u32(0xC) == 0
    assert here.used_mib(tenant) == before


def test_depth_buffer_is_for_an_own_channel(here: World) -> None:
    tenant, stranger = drawing(here), drawing(here)
    client, theirs = with_channel(tenant), with_channel(stranger)

    def bound(named: int, handle: int) -> int:
        params = struct.pack("<IIQII", named, handle, 0x1000, 2, 0)
        return tenant.control(client, SUBDEVICE, nv.NV2080_CTRL_CMD_GR_CTXSW_ZCULL_BIND, params).u32(
            STATUS_AT
        )

    assert bound(client, CHANNEL) == 0
    assert bound(theirs, CHANNEL) == nv.NV_ERR_INVALID_CLIENT
    assert bound(client, PARENT) == nv.NV_ERR_INVALID_CLIENT, "no channel"


@pytest.mark.parametrize(
    ("flags", "graphics", "said"),
    [(2, 1, nv.NV_ERR_NOT_SUPPORTED), (3, 2, nv.NV_ERR_NOT_SUPPORTED), (2, 0, 0), (1, 0, 0)],
)
def test_share_is_not_preempted_within_a_triangle(here: World, flags: int, graphics: int, said: int) -> None:
    """The driver takes memory for that, which nothing charges."""
    tenant = drawing(here)
    client = with_channel(tenant)
    params = struct.pack("<4I", flags, CHANNEL, graphics, 1).ljust(32, b"\0")
    command = nv.NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE
    assert tenant.control(client, SUBDEVICE, command, params).u32(STATUS_AT) == said
    here.engine.whole(tenant.id)
    assert tenant.control(client, SUBDEVICE, command, params).u32(STATUS_AT) == 0


def test_context_that_draws_is_preempted_as_it_asks(here: World) -> None:
    """Vulkan asks for preemption between blocks; RM has none between instructions there."""
    tenant = drawing(here)
    client = with_channel(tenant)
    params = struct.pack("<4I", 1, PARENT, 0, 1).ljust(32, b"\0")
    command = nv.NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE
    assert tenant.control(client, SUBDEVICE, command, params).u32(STATUS_AT) == 0
    assert makes(tenant, client, CHANNEL, 0x92, nv.HOPPER_A, bytes(16)) == 0
    assert tenant.control(client, SUBDEVICE, command, params).u32(STATUS_AT) == 0


def test_share_does_not_fill_the_table_of_colours(here: World) -> None:
    tenant = drawing(here)
    client = tenant.client()
    assert makes(tenant, client, SUBDEVICE, 0x61, nv.GF100_ZBC_CLEAR) == 0
    for said in (nv.NV_ERR_INSUFFICIENT_RESOURCES, 0):
        answer = tenant.control(client, 0x61, nv.NV9096_CTRL_CMD_SET_ZBC_COLOR_CLEAR, bytes(40))
        assert answer.u32(STATUS_AT) == said
        here.engine.whole(tenant.id)


def test_regions_of_the_cards_memory_end_at_the_cap(here: World) -> None:
    tenant = drawing(here, 512)
    client = tenant.client()
    answer = tenant.control(client, SUBDEVICE, nv.NV2080_CTRL_CMD_FB_GET_FB_REGION_INFO, bytes(904))
    assert answer.u32(STATUS_AT) == 0
    assert struct.unpack_from("<IIQQ", answer.params) == (1, 0, 0, 512 * MIB - 1)
    assert not any(answer.params[64:])


def test_semaphores_lie_in_the_hosts_memory(here: World) -> None:
    """RM has another name of theirs, and allows no other memory: it would keep it beyond its end."""
    tenant = drawing(here)
    client = tenant.client()
    assert makes(tenant, client, DEVICE, 0x70, MEMORY, memory(MIB)) == 0
    assert makes(tenant, client, DEVICE, 0x71, MEMORY_SYSTEM, host_memory(MIB)) == 0
    of = [
        makes(
            tenant, client, SUBDEVICE, SEMAPHORES, nv.NV_SEMAPHORE_SURFACE, struct.pack("<IIQ", each, 0, 0)
        )
        for each in (0x70, 0x71)
    ]
    assert of == [nv.NV_ERR_INVALID_PARAMETER, 0]


def test_share_has_so_many_mappers_of_so_long_queues(here: World) -> None:
    tenant = drawing(here)
    client = tenant.client()

    def made(handle: int, queue: int) -> int:
        params = struct.pack("<4IQ", SEMAPHORES, queue, 0x70, 0, 0)
        return makes(tenant, client, SUBDEVICE, handle, nv.NV_MEMORY_MAPPER, params)

    assert made(0xFFF, 8193) == nv.NV_ERR_NO_MEMORY
    assert [made(0x1000 + i, 8192) for i in range(65)] == [0] * 64 + [nv.NV_ERR_INSUFFICIENT_RESOURCES]


@pytest.mark.parametrize(("channels", "said"), [(0, 0), (3, nv.NV_ERR_INSUFFICIENT_PERMISSIONS)])
def test_nothing_waits_for_channels(here: World, channels: int, said: int) -> None:
    """As open drivers, which refuse it for those that are named."""
    tenant = drawing(here)
    outer = struct.pack("<4I3Q4I", tenant.client(), DEVICE, 0, channels, 0, 0, 0, 0x600, 5_000_000, 0, 0)
    assert tenant.ioctl(tenant.ctl, nv.NV_ESC_RM_IDLE_CHANNELS, outer).u32(0x30) == said


def test_contexts_of_graphics_are_those_of_computing(here: World) -> None:
    """What RM sets aside with the group is for both: nothing more is charged for a group that draws."""
    tenant = drawing(here)
    client = tenant.client()
    before = here.used_mib(tenant)
    assert makes(tenant, client, DEVICE, PARENT, GROUP, group()) == 0
    assert here.used_mib(tenant) == before + CONTEXT_MIB
