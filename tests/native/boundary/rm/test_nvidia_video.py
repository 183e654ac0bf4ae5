"""Video, with a share and with whole cards: what gVisor's nvproxy lists for it, channels below a device,
unmapping, sessions, and that nothing of it is a container's without the driver capability.
"""

import struct
from pathlib import Path

import pytest

from native_sched.daemon.engine_abi import Refused
from sim import cards
from tests.native.by_capability import INTERFACE, KINDS, VERSIONS, branch, listed, rows, served_to_all
from tests.native.nvidia_mediated import VERSION, Answer, Tenant, World, world
from tests.native.rm_params import (
    ADDRESS_SPACE,
    HOPPER,
    MEMORY,
    MEMORY_SYSTEM,
    MIB,
    SPACE_MIB,
    channel,
    host_memory,
    memory,
)
from tests.support import rm_numbers
from tests.support import rm_numbers as nv
from tests.support.rm_interface import Item

STATUS_AT, MADE_STATUS_AT, MADE_AT = 0x1C, 0x28, 8
DEVICE, SUBDEVICE, SPACE, BARE = 0xD0, 0xD1, 0x50, 0x60
DECODER, JPEG = 0x13, 0x2B
ENGINE_AT, VASPACE_AT = 0x80, 0x1C
GIB, PAGE, OFFSET_FIXED = 1 << 30, 1 << 12, 1 << 15
NO_CHANNEL_OF_IT = rm_numbers.BLACKWELL_CHANNEL_GPFIFO_B
# Of these no header says how large their parameters are.
NO_SIZES = {0xD2B0, 0xD2D1, 0xD2FA}
# What all containers of a card have left of its encoders.
OF_WHOLE_CARDS = {nv.NV2080_CTRL_CMD_GPU_GET_ENCODER_CAPACITY}


def whole(here: World, tenant: Tenant) -> Tenant:
    here.engine.whole(tenant.id)
    return with_video(here, tenant)


def with_video(here: World, tenant: Tenant) -> Tenant:
    here.engine.capabilities(tenant.id, ["video"])
    return tenant


def bare(engine: int = DECODER, *, userd: int = 0, vaspace: int = 0, version: str = VERSION) -> bytes:
    """Parameters of a channel below a device."""
    params = bytearray(channel(userd).ljust(376, b"\0"))
    struct.pack_into("I", params, VASPACE_AT, vaspace)
    struct.pack_into("I", params, ENGINE_AT + 8 * (branch(version) >= (610, 43)), engine)
    return bytes(params)


def makes(tenant: Tenant, client: int, parent: int, handle: int, class_id: int, params: bytes = b"") -> int:
    return tenant.alloc(client, parent, handle, class_id, params).u32(MADE_STATUS_AT)


def ready(here: World, tenant: Tenant, version: str = VERSION) -> int:
    """A client with a channel of a decoder, as far as it gets one."""
    client = tenant.client()
    makes(tenant, client, DEVICE, BARE, HOPPER, bare(version=version))
    return client


def tried(tenant: Tenant, client: int, item: Item, version: str) -> int:
    """RM's status for a call by that row: most classes are of another card or engine."""
    if item in INTERFACE.classes:
        size = INTERFACE.size_at(item.size, branch(version)) or 0
        parent = {nv.NV01_CONTEXT_DMA: DEVICE, nv.NVENC_SW_SESSION: SUBDEVICE}.get(item.number, BARE)
        return makes(
            tenant,
            client,
            parent,
            item.number | 1 << 16,
            item.number,
            size.to_bytes(4, "little").ljust(size, b"\0")[:size],
        )
    of = {nv.NV01_DEVICE_0: DEVICE, nv.NV20_SUBDEVICE_0: SUBDEVICE}.get(item.number >> 16, BARE)
    return tenant.control(client, of, item.number, bytes(1024)).u32(STATUS_AT)


def card_groups(here: World) -> dict[str, int]:
    """How many groups the card has, by engine."""
    engines = cards.account(here.card.admin_socket).cards[0].engines
    return {engine.engine: len(engine.groups) for engine in engines}


@pytest.mark.parametrize("version", VERSIONS)
def test_what_nvproxy_has_for_video_reaches_the_driver(tmp_path: Path, version: str) -> None:
    """Of a share and of whole cards, and not without the capability: then it is what the row says."""
    items = rows("video", version)
    numbers = {kind: {item.number for item in items if item in of} for kind, of in KINDS.items()}
    for kind in KINDS:
        alone = listed("video", kind, version).keys() - listed("compute", kind, version).keys()
        assert alone - numbers[kind] <= served_to_all(kind, version) | NO_SIZES | OF_WHOLE_CARDS
    with world(tmp_path, version=version) as here:
        tenant = here.tenant()
        client, before = ready(here, tenant, version), here.engine.refused(tenant.id)[Refused.SHARE]
        said = {item.name: tried(tenant, client, item, version) for item in items}
        assert said == {item.name: rm_numbers.by_symbol()[item.status] for item in items}
        assert here.engine.refused(tenant.id)[Refused.SHARE] == before + len(items)
        with_video(here, tenant)
        before = here.engine.refused(tenant.id)[Refused.SHARE]
        said = {item.name: tried(tenant, client, item, version) for item in items}
        assert here.engine.refused(tenant.id)[Refused.SHARE] == before
        assert said["NVB8B0_VIDEO_DECODER"] == 0
        assert len(items) > 25


def test_channel_below_a_device_has_a_group_that_ends_with_it(here: World) -> None:
    tenant = with_video(here, here.tenant())
    client = tenant.client()
    assert makes(tenant, client, DEVICE, SPACE, ADDRESS_SPACE, bytes(56)) == 0
    made = tenant.alloc(client, DEVICE, BARE, HOPPER, bare(vaspace=SPACE))
    assert (made.u32(MADE_STATUS_AT), made.u32(MADE_AT)) == (0, BARE)
    assert struct.unpack_from("I", made.params, VASPACE_AT) == (SPACE,)
    assert card_groups(here)["video"] == 1
    used = here.used_mib(tenant)
    assert used > SPACE_MIB
    assert makes(tenant, client, DEVICE, 0x70, MEMORY_SYSTEM, host_memory(MIB)) == 0
    assert tenant.free(client, BARE).u32(0xC) == 0
    assert makes(tenant, client, DEVICE, BARE, HOPPER, bare(userd=0x70)) == 0
    assert tenant.control(client, BARE, nv.NVA06F_CTRL_CMD_GPFIFO_SCHEDULE, b"\1\0\0").u32(STATUS_AT) == 0
    [video] = [
        group
        for engine in cards.account(here.card.admin_socket).cards[0].engines
        for group in engine.groups
        if engine.engine == "video"
    ]
    assert (video.enabled, video.open) == (True, True)
    assert makes(tenant, client, BARE, 0x61, nv.NVB8B0_VIDEO_DECODER, struct.pack("III", 12, 0, 0)) == 0
    assert makes(tenant, client, BARE, 0x62, nv.NVB8D1_VIDEO_NVJPG) == nv.NV_ERR_INVALID_CLASS, (
        "of another engine"
    )
    assert (
        tenant.control(client, BARE, nv.NVA06F_CTRL_CMD_BIND, struct.pack("I", DECODER)).u32(STATUS_AT) == 0
    )
    assert tenant.free(client, BARE).u32(0xC) == 0
    assert card_groups(here)["video"] == 0
    assert here.used_mib(tenant) == SPACE_MIB
    assert makes(tenant, client, DEVICE, BARE, HOPPER, bare(JPEG)) == 0
    assert here.engine.state(tenant.id).unaccounted_bytes == 0


@pytest.mark.parametrize("engine", [0x1B, 0x3F, 0x7F])
def test_refused_channel_leaves_no_group(here: World, engine: int) -> None:
    """This chip has no encoder, and nothing has engine 0x7f."""
    tenant = whole(here, here.tenant())
    client = tenant.client()
    before = here.used_mib(tenant)
    assert makes(tenant, client, DEVICE, BARE, HOPPER, bare(engine)) != 0
    assert makes(tenant, client, DEVICE, BARE, NO_CHANNEL_OF_IT, bare()) != 0
    assert (here.used_mib(tenant), card_groups(here)["video"]) == (before, 0)
    assert makes(tenant, client, DEVICE, BARE, HOPPER, bare()) == 0


def test_share_has_channels_below_a_device(here: World) -> None:
    """libcuda makes one where it moves a process to the host."""
    tenant, client = here.tenant_client()
    assert makes(tenant, client, DEVICE, BARE, HOPPER, bare(1)) == 0
    assert tenant.control(client, BARE, nv.NVA06F_CTRL_CMD_GPFIFO_SCHEDULE, b"\1\0\0").u32(STATUS_AT) == 0
    assert tenant.free(client, BARE).u32(0xC) == 0


def test_group_ends_with_its_channel_under_the_next_mgpud(here: World) -> None:
    tenant = whole(here, here.tenant())
    client = ready(here, tenant)
    used = here.used_mib(tenant)
    here.restart()
    whole(here, tenant)
    assert here.used_mib(tenant) == used
    assert tenant.control(client, BARE, nv.NVA06F_CTRL_CMD_GPFIFO_SCHEDULE, b"\1\0\0").u32(STATUS_AT) == 0
    assert tenant.free(client, BARE).u32(0xC) == 0
    assert (here.used_mib(tenant), card_groups(here)["video"]) == (0, 0)


def test_handles_of_another_container_are_nobody_elses(here: World) -> None:
    """In the parameters of video classes, and by unmapping. The other one has no card: this one holds it."""
    tenant = whole(here, here.tenant())
    client = ready(here, tenant)
    assert makes(tenant, client, DEVICE, 0x70, MEMORY_SYSTEM, host_memory(MIB)) == 0
    own = struct.pack("IIIIQQ", SUBDEVICE, 0, 0x70, 0, 0, 4095)
    assert makes(tenant, client, DEVICE, 0x71, nv.NV01_CONTEXT_DMA, own) == 0
    foreign = struct.pack("IIIIQQ", SUBDEVICE, 0, 0x7777, 0, 0, 4095)
    assert makes(tenant, client, DEVICE, 0x72, nv.NV01_CONTEXT_DMA, foreign) == nv.NV_ERR_OBJECT_NOT_FOUND
    assert unmapped(tenant, client, 0x7777, 4 * GIB) == nv.NV_ERR_INVALID_OBJECT_HANDLE
    assert unmapped(tenant, client + 1, 0x70, 4 * GIB) == nv.NV_ERR_INVALID_OBJECT_HANDLE
    # What it has made ends with its client.
    assert tenant.free(client, client).u32(0xC) == 0
    assert (here.used_mib(tenant), card_groups(here)["video"]) == (0, 0)


def mapped(tenant: Tenant, client: int) -> int:
    outer = struct.pack(
        "<4I2Q4IQII", client, DEVICE, 0x80, 0x81, 0, 2 * MIB, OFFSET_FIXED, 0, 0, 0, 4 * GIB, 0, 0
    )
    return tenant.ioctl(tenant.ctl, nv.NV_ESC_RM_MAP_MEMORY_DMA, outer).u32(0x38)


def unmapped(
    tenant: Tenant, client: int, memory_handle: int, at: int, part: int = 0, *, by: int = DEVICE
) -> int:
    outer = struct.pack("<6I2QII", client, by, 0x80, memory_handle, 0, 0, at, part, 0, 0)
    return tenant.ioctl(tenant.ctl, nv.NV_ESC_RM_UNMAP_MEMORY_DMA, outer).u32(0x28)


def into_caller(tenant: Tenant, client: int, handle: int) -> Answer:
    """Host memory as libnvcuvid has it, which RM maps into its caller."""
    outer = struct.pack(
        "<6IQQIIiI", client, DEVICE, handle, MEMORY_SYSTEM, 0x5010, 0, 0, 2 * MIB - 1, 0, 0, tenant.ctl, 0
    )
    return tenant.ioctl(tenant.card, nv.NV_ESC_RM_ALLOC_MEMORY, outer)


def with_addresses(tenant: Tenant) -> int:
    client = tenant.client()
    virtual = bytearray(memory(GIB))
    struct.pack_into("I", virtual, 8, 1 << 19)
    assert makes(tenant, client, DEVICE, 0x80, nv.NV50_MEMORY_VIRTUAL, bytes(virtual)) == 0
    return client


def test_host_memory_that_rm_maps_into_its_caller(here: World) -> None:
    """It is the caller's to make, and is known from its mapping on, which names no memory when it ends."""
    tenant = whole(here, here.tenant())
    client = with_addresses(tenant)
    made = into_caller(tenant, client, 0x81)
    assert (made.through, made.u32(0x28)) == (True, 0)
    before = here.used_mib(tenant)
    assert mapped(tenant, client) == 0
    assert here.used_mib(tenant) > before
    assert unmapped(tenant, client, 0, 4 * GIB) == 0
    assert here.used_mib(tenant) == before
    assert tenant.free(client, 0x81).u32(0xC) == 0
    assert here.engine.state(tenant.id).unaccounted_bytes == 0


def test_without_video_no_host_memory_is_mapped_into_its_caller(here: World) -> None:
    tenant = here.tenant()
    made = into_caller(tenant, with_addresses(tenant), 0x81)
    assert (made.through, made.u32(0x28)) == (False, nv.NV_ERR_NOT_SUPPORTED)


def test_unmapping_gives_back_what_its_tables_take(here: World) -> None:
    tenant = here.tenant()
    client = with_addresses(tenant)
    assert makes(tenant, client, DEVICE, 0x81, MEMORY, memory(2 * MIB)) == 0
    before = here.used_mib(tenant)
    for part in (0, 2 * MIB):
        assert mapped(tenant, client) == 0
        assert here.used_mib(tenant) > before
        assert unmapped(tenant, client, 0x81, 4 * GIB, part) == 0
        assert here.used_mib(tenant) == before
    assert mapped(tenant, client) == 0
    once = here.used_mib(tenant)
    assert unmapped(tenant, client, 0x81, 2 * GIB) != 0, "nothing is there"
    assert here.used_mib(tenant) == once


@pytest.mark.parametrize(("at", "part"), [(0, 2 * MIB - PAGE), (0, PAGE), (PAGE, PAGE), (PAGE, 2 * MIB)])
def test_unmapping_a_part_gives_nothing_back(here: World, at: int, part: int) -> None:
    """Nor what is mapped and unmapped there later, until the memory is freed: what is left has tables."""
    tenant = here.tenant()
    client = with_addresses(tenant)
    assert makes(tenant, client, DEVICE, 0x81, MEMORY, memory(2 * MIB)) == 0
    before = here.used_mib(tenant)
    assert mapped(tenant, client) == 0
    once = here.used_mib(tenant)
    assert unmapped(tenant, client, 0x81, 4 * GIB + at, part) == 0
    assert here.used_mib(tenant) == once
    if not at:
        assert mapped(tenant, client) == 0
        assert here.used_mib(tenant) > once
        assert unmapped(tenant, client, 0, 4 * GIB) == 0
        assert here.used_mib(tenant) == once
    assert tenant.free(client, 0x81).u32(0xC) == 0
    assert here.used_mib(tenant) == before - 2


@pytest.mark.parametrize("part", [0, 1 << 63])
def test_unmapping_by_another_device_gives_nothing_back(here: World, part: int) -> None:
    """RM leaves out what another one was named for, and says that a part of nothing is unmapped."""
    tenant = here.tenant()
    client = with_addresses(tenant)
    assert makes(tenant, client, DEVICE, 0x81, MEMORY, memory(2 * MIB)) == 0
    assert mapped(tenant, client) == 0
    once = here.used_mib(tenant)
    base = 0 if part else 4 * GIB
    assert (unmapped(tenant, client, 0, base, part, by=SUBDEVICE) == 0) == bool(part)
    assert here.used_mib(tenant) == once


def test_encoders_session_names_no_memory_to_the_driver(here: World) -> None:
    """RM reads it once a second without a reference to it."""
    tenant = with_video(here, here.tenant())
    client = tenant.client()
    assert makes(tenant, client, DEVICE, 0x81, MEMORY, memory(2 * MIB)) == 0
    made = tenant.alloc(
        client, SUBDEVICE, 0x82, nv.NVENC_SW_SESSION, struct.pack("<5I", 0, 640, 480, 1, 0x81)
    )
    assert made.u32(MADE_STATUS_AT) == 0
    assert made.params == struct.pack("<5I", 0, 640, 480, 0, 0)


def test_share_has_so_many_sessions(here: World) -> None:
    """Of all its clients together; whole cards have no such bound, and what is freed counts no more."""
    tenant = with_video(here, here.tenant())
    client = tenant.client()
    made = [makes(tenant, client, SUBDEVICE, 0x1000 + i, nv.NVENC_SW_SESSION, bytes(20)) for i in range(65)]
    assert made == [0] * 64 + [nv.NV_ERR_INSUFFICIENT_RESOURCES]
    other = ready(here, tenant)
    assert makes(tenant, other, BARE, 0x61, nv.NVB8B0_VIDEO_DECODER) == nv.NV_ERR_INSUFFICIENT_RESOURCES
    assert tenant.free(client, 0x1000).u32(0xC) == 0
    assert makes(tenant, other, BARE, 0x61, nv.NVB8B0_VIDEO_DECODER) == 0
    whole(here, tenant)
    assert makes(tenant, other, SUBDEVICE, 0x62, nv.NVENC_SW_SESSION, bytes(20)) == 0
