"""What interface.def has for whole cards: a container that holds its cards alone gets it, no other
does, and none reaches another's by it.
"""

import errno
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from native_sched.daemon.engine_abi import NodeKind, Refused
from tests.native.export_steps import FOR_ALL, OTHER, duplicate, share
from tests.native.nvidia_mediated import Tenant, World, world
from tests.native.retained_steps import (
    CHANNEL,
    GROUP_HANDLE,
    SPACE,
    make_channel,
    make_group,
    make_space,
    of_one_group,
    registers_space,
)
from tests.native.rm_params import MIB, ROOT
from tests.native.uvm_params import register_space
from tests.support import rm_interface, rm_numbers
from tests.support import rm_numbers as nv
from tests.support.rm_interface import Item

INTERFACE = rm_interface.read()
BRANCH = (580, 65)
STATUS_AT, MADE_STATUS_AT = 0x1C, 0x28
SUBDEVICE, TRACED, PROFILED, DEBUGGED, SHOWN, REACHED = 0xD1, 0x700, 0x701, 0x702, 0x703, 0x704
DISABLE_HMM, MULTI_PROCESS = 1, 2
SM_VERSION, GPU_INFO_BYTES = 0x2C, 564
WHOLE = [
    item
    for item in (*INTERFACE.classes, *INTERFACE.controls)
    if item.whole and item.number >> 16 != nv.GF100_ZBC_CLEAR and INTERFACE.lives_at(item.name, BRANCH)
]


@contextmanager
def cardless(here: World, number: int) -> Iterator[Tenant]:
    """A tenant that has a client and no card."""
    with ExitStack() as stack:
        here.engine.add_tenant(number)
        for kind in (NodeKind.CTL, NodeKind.CARD, NodeKind.UVM):
            here.engine.add_node(number, 0, 1 + kind, kind, 0)
        made = Tenant(here, number, number)
        stack.callback(made.kill)
        yield made


def tried(tenant: Tenant, client: int, item: Item) -> int:
    """RM's status for a call by that row."""
    if item in INTERFACE.classes:
        return tenant.alloc(client, SUBDEVICE, 0x900, item.number, bytes(8)).u32(MADE_STATUS_AT)
    of = {
        nv.RM_USER_SHARED_DATA: SHOWN,
        nv.NV20_SUBDEVICE_0: SUBDEVICE,
        nv.NV50_THIRD_PARTY_P2P: REACHED,
        nv.GT200_DEBUGGER: DEBUGGED,
        nv.GF100_PROFILER: TRACED,
        nv.MAXWELL_PROFILER: PROFILED,
    }[item.number >> 16]
    return tenant.control(client, of, item.number, bytes(4)).u32(STATUS_AT)


def objects(tenant: Tenant) -> tuple[int, int]:
    """A client with a page of use, a debugger and a profiler of each kind, as far as it gets them; what the
    last was answered."""
    client = tenant.client()
    assert tenant.alloc(client, SUBDEVICE, TRACED, nv.GF100_PROFILER).u32(MADE_STATUS_AT) == 0
    assert tenant.alloc(client, SUBDEVICE, SHOWN, nv.RM_USER_SHARED_DATA, bytes(8)).u32(MADE_STATUS_AT) == 0
    params = struct.pack("III", 0, client, DEBUGGED)
    assert tenant.alloc(client, 0xD0, DEBUGGED, nv.GT200_DEBUGGER, params).u32(MADE_STATUS_AT) == 0
    tenant.alloc(client, SUBDEVICE, REACHED, nv.NV50_THIRD_PARTY_P2P, bytes(4))
    made = tenant.alloc(client, SUBDEVICE, PROFILED, nv.MAXWELL_PROFILER_DEVICE, bytes(8))
    return client, made.u32(MADE_STATUS_AT)


def test_share_gets_the_status_of_the_row_and_it_is_counted(here: World) -> None:
    tenant = here.tenant()
    client, made = objects(tenant)
    assert made == nv.NV_ERR_INVALID_CLASS
    before = here.engine.refused(tenant.id)[Refused.SHARE]
    found = {item.name: tried(tenant, client, item) for item in WHOLE}
    assert found == {item.name: rm_numbers.by_symbol()[item.status] for item in WHOLE}
    assert here.engine.refused(tenant.id)[Refused.SHARE] == before + len(WHOLE)
    assert len(WHOLE) > 30


def test_whole_cards_get_what_the_driver_answers(here: World) -> None:
    tenant = here.tenant()
    here.engine.whole(tenant.id)
    client, made = objects(tenant)
    assert made == 0
    # The driver judges the size, which is right for some: by nothing else does it tell that it was asked.
    found = {item.name: tried(tenant, client, item) for item in WHOLE}
    refused = {item.name: rm_numbers.by_symbol()[item.status] for item in WHOLE}
    assert not {name for name, status in found.items() if status == refused[name]}
    assert here.engine.refused(tenant.id)[Refused.SHARE] == 0


@pytest.mark.parametrize("whole", [False, True], ids=["share", "whole"])
def test_driver_is_said_to_have_no_dma_buf(here: World, whole: bool) -> None:
    """Which is refused: libraries that were told of it would try no other way."""
    tenant = here.tenant()
    if whole:
        here.engine.whole(tenant.id)
    client = tenant.client()
    asked = struct.pack("5I", 2, nv.NV2080_CTRL_GPU_INFO_INDEX_DMABUF_CAPABILITY, 7, SM_VERSION, 7).ljust(
        GPU_INFO_BYTES, b"\0"
    )
    answer = tenant.control(client, SUBDEVICE, nv.NV2080_CTRL_CMD_GPU_GET_INFO_V2, asked)
    assert (answer.u32(STATUS_AT), answer.through) == (0, False)
    count, _, dma_buf, _, version = struct.unpack_from("5I", answer.params)
    assert (count, dma_buf) == (2, 0)
    assert version > 7


def test_activity_is_traced_by_anybody_and_counters_are_reserved_by_none_who_shares(here: World) -> None:
    tenant = here.tenant()
    client, _ = objects(tenant)
    answer = tenant.control(client, TRACED, nv.NV90CC_CTRL_CMD_HWPM_RESERVE, b"")
    assert answer.u32(STATUS_AT) == nv.NV_ERR_NOT_SUPPORTED


@pytest.mark.parametrize("named", ["other", "none"])
def test_profiler_of_another_containers_client_is_not_made(here: World, named: str) -> None:
    tenant = here.tenant()
    here.engine.whole(tenant.id)
    client = tenant.client()
    with cardless(here, 70) as other:
        theirs = other.alloc(0, 0, 0, ROOT).u32(8)
        target = theirs if named == "other" else client + 77
        params = struct.pack("II", target, target)
        made = tenant.alloc(client, SUBDEVICE, PROFILED, nv.MAXWELL_PROFILER_DEVICE, params)
        assert made.u32(MADE_STATUS_AT) == nv.NV_ERR_INVALID_CLIENT
        # Nor by the other's client, from our file or from its own: it has no card.
        assert tenant.control(theirs, theirs, nv.NVB0CC_CTRL_CMD_EXEC_REG_OPS, bytes(3980)).u32(
            STATUS_AT
        ) in (
            nv.NV_ERR_INVALID_CLIENT,
            nv.NV_ERR_NOT_SUPPORTED,
        )
        device = other.alloc(theirs, theirs, 0xD0, 0x80, bytes(56))
        assert device.u32(MADE_STATUS_AT) == nv.NV_ERR_INVALID_DEVICE
    own = struct.pack("II", client, SUBDEVICE)
    assert (
        tenant.alloc(client, SUBDEVICE, PROFILED, nv.MAXWELL_PROFILER_DEVICE, own).u32(MADE_STATUS_AT) == 0
    )


def test_card_that_is_held_alone_is_given_to_nobody_else(here: World) -> None:
    tenant = here.tenant()
    here.engine.whole(tenant.id)
    here.engine.add_tenant(71)
    with pytest.raises(OSError, match="busy") as refused:
        here.engine.grant(71, 0, MIB)
    assert refused.value.errno == errno.EBUSY
    here.engine.grant(tenant.id, 0, MIB)


def test_card_with_others_is_held_alone_by_nobody(here: World) -> None:
    tenant, beside = here.tenant(), here.tenant()
    for one in (tenant, beside):
        with pytest.raises(OSError, match="busy"):
            here.engine.whole(one.id)
        assert objects(one)[1] == nv.NV_ERR_INVALID_CLASS


def test_memory_of_malloc_is_for_whole_cards(here: World) -> None:
    """HMM: no flag is set against it, and what a program asks for itself is kept."""
    share, client = of_one_group(here)
    make_space(share, client)
    made = share.uvm_initialize()
    assert (made.through, struct.unpack_from("Q", made.outer)) == (True, (DISABLE_HMM,))
    assert share.uvm_call(nv.UVM_POPULATE_PAGEABLE, bytes(24)).result == -errno.EPERM
    assert here.engine.refused(share.id)[Refused.PERMISSION] == 1


@pytest.mark.parametrize("flags", [0, DISABLE_HMM])
def test_whole_cards_have_the_memory_of_malloc(here: World, flags: int) -> None:
    whole, client = of_one_group(here)
    here.engine.whole(whole.id)
    make_space(whole, client)
    made = whole.uvm_initialize(flags=flags)
    assert (made.through, struct.unpack_from("Q", made.outer)) == (True, (flags,))
    assert registers_space(whole, client) == 0
    assert whole.uvm_call(nv.UVM_POPULATE_PAGEABLE, bytes(24)).through
    assert here.engine.state(whole.id).unaccounted_bytes == 0


@pytest.mark.parametrize("flags", [MULTI_PROCESS, MULTI_PROCESS | DISABLE_HMM])
@pytest.mark.parametrize("whole", [True, False])
def test_pages_of_processes_that_ended_are_kept_on_whole_cards_alone(
    here: World, whole: bool, flags: int
) -> None:
    """As the server of MPS asks: they are nobody else's there."""
    one, client = of_one_group(here)
    if whole:
        here.engine.whole(one.id)
    make_space(one, client)
    assert one.uvm_initialize(lands=flags).through
    vaspace = one.uvm_call(nv.UVM_REGISTER_GPU_VASPACE, register_space(client, SPACE))
    refused = vaspace.result == -errno.EPERM, here.engine.state(one.id).unaccounted_bytes > 0
    assert refused == (not whole, not whole)


def test_client_of_mps_works_in_the_servers_group(here: World) -> None:
    """As it does (recorded on an H200): the group by another name, a channel in it, and that scheduled."""
    server = here.tenant()
    mate = here.mate(server)
    here.engine.whole(server.id)
    client, its = server.client(), mate.client()
    make_group(server, client)
    assert share(server, client, GROUP_HANDLE, FOR_ALL) == 0
    assert duplicate(mate, its, client, GROUP_HANDLE, OTHER) == 0
    make_channel(mate, its, group_handle=OTHER)
    scheduled = mate.control(its, CHANNEL, nv.NVA06F_CTRL_CMD_GPFIFO_SCHEDULE, bytes([1, 0, 0]))
    assert (scheduled.result, scheduled.u32(STATUS_AT)) == (0, 0)
    server.kill()
    make_channel(mate, its, CHANNEL + 1, OTHER)


def test_mig_instance_is_no_whole_card(tmp_path: Path) -> None:
    with world(tmp_path, [(1, 0)]) as here:
        tenant = here.tenant()
        with pytest.raises(OSError, match="Invalid"):
            here.engine.whole(tenant.id)


def test_no_card_is_no_whole_card(here: World) -> None:
    here.engine.add_tenant(72)
    with pytest.raises(OSError, match="Invalid"):
        here.engine.whole(72)
