"""NVIDIA's driver under the whole mediator: what is executed, what is continued, and what a flipped call
comes to.
"""

import errno
import os
import struct

from native_sched.daemon.engine_abi import Unsuspendable
from tests.native.nvidia_mediated import Tenant, World
from tests.native.retained_steps import CHANNEL, GROUP_HANDLE, STATUS, USERD, make, working_group
from tests.native.rm_params import (
    ALLOC_OS_EVENT,
    CARD,
    CARD_CONTEXT_MIB,
    CONTEXT_MIB,
    CONTROL,
    CTL,
    EVENT_OS,
    FREE,
    FREE_OS_EVENT,
    GROUP,
    HOPPER,
    MEMORY,
    MIB,
    REGISTER_FD,
    UVM_INITIALIZE,
    UVM_MIGRATE,
    UVM_POPULATE_PAGEABLE,
    channel,
    group,
    memory,
)
from tests.support import rm_numbers as nv
from tests.support.waiting import until

INSUFFICIENT, INVALID_ARGUMENT = nv.NV_ERR_INSUFFICIENT_PERMISSIONS, nv.NV_ERR_INVALID_ARGUMENT
INVALID_EVENT, NOT_FOUND = nv.NV_ERR_INVALID_EVENT, nv.NV_ERR_OBJECT_NOT_FOUND
INVALID_HANDLE, INVALID_PARENT = nv.NV_ERR_INVALID_OBJECT_HANDLE, nv.NV_ERR_INVALID_OBJECT_PARENT
NO_MEMORY, INVALID_CLIENT, NOT_SUPPORTED = (
    nv.NV_ERR_NO_MEMORY, nv.NV_ERR_INVALID_CLIENT, nv.NV_ERR_NOT_SUPPORTED,
)  # fmt: skip
ATTACHED, SCHEDULE = nv.NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS, nv.NVA06C_CTRL_CMD_GPFIFO_SCHEDULE
PIDS, PID_INFO = nv.NV2080_CTRL_CMD_GPU_GET_PIDS, nv.NV2080_CTRL_CMD_GPU_GET_PID_INFO
FB_INFO, DISABLE = nv.NV2080_CTRL_CMD_FB_GET_INFO_V2, nv.NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS


def test_memory_is_charged_capped_and_released(here: World) -> None:
    tenant, client = here.tenant_client(cap_mib=64)
    make(tenant, client, 0xD0, 0x100, MEMORY, memory(48 * MIB))
    assert here.used_mib(tenant) == 48
    refused = tenant.alloc(client, 0xD0, 0x101, MEMORY, memory(32 * MIB))
    assert (refused.result, refused.u32(STATUS)) == (0, NO_MEMORY)
    info = struct.pack("I4I", 2, 8, 0, 0x16, 0).ljust(1028, b"\0")
    seen = tenant.control(client, 0xD1, FB_INFO, info)
    assert struct.unpack_from("5I", seen.params) == (2, 8, 64 << 10, 0x16, 16 << 10)
    assert tenant.free(client, 0x100).u32(0xC) == 0
    assert here.used_mib(tenant) == 0


def test_end_of_the_process_ends_its_charges(here: World) -> None:
    tenant, client = here.tenant_client()
    make(tenant, client, 0xD0, 0x100, MEMORY, memory(48 * MIB))
    working_group(tenant, client)
    assert here.used_mib(tenant) == 48 + CONTEXT_MIB
    tenant.kill()
    until(lambda: here.engine.state(tenant.id).files == 0, "its files are gone")
    assert here.used_mib(tenant) == 0
    assert here.engine.state(tenant.id).objects == 0


def test_running_tenants_survive_a_restart(here: World) -> None:
    """Nothing is left of what the kernel called their files: each is found again, on whichever descriptor it
    is.
    """
    one, other = here.tenant(cap_mib=512), here.tenant(offline=True)
    client, other_client = one.client(), other.client()
    make(one, client, 0xD0, 0x100, MEMORY, memory(200 * MIB))
    other_view = working_group(other, other_client)
    here.restart()
    assert here.used_mib(one) == 200
    assert here.used_mib(other) == CONTEXT_MIB
    assert other.tell("put", other_view, 3) == "put"
    until(lambda: here.groups() == {GROUP_HANDLE: True}, "the group runs again")
    make(one, client, 0xD0, 0x101, MEMORY, memory(200 * MIB))
    refused = one.alloc(client, 0xD0, 0x102, MEMORY, memory(200 * MIB))
    assert (refused.result, refused.u32(STATUS)) == (0, NO_MEMORY)
    assert one.free(client, 0x100).u32(0xC) == 0
    here.restart()
    assert here.used_mib(one) == 200
    view = working_group(one, client)
    assert one.tell("put", view, 3) == "put"
    until(lambda: not here.engine.sched(other.id).enabled, "offline gives way")
    one.kill()
    until(lambda: here.engine.state(one.id).files == 0, "its files are gone")
    assert here.used_mib(one) == 0


def test_immediate_stop_leaves_no_thread(here: World) -> None:
    here.tenant()
    before = len(os.listdir("/proc/self/task"))
    for _ in range(100):
        here.restart()
    assert len(os.listdir("/proc/self/task")) == before


def test_charge_ends_for_a_file_closed_during_restart(here: World) -> None:
    tenant, other = here.tenant(), here.tenant()
    make(tenant, tenant.client(), 0xD0, 0x100, MEMORY, memory(48 * MIB))
    make(other, other.client(), 0xD0, 0x100, MEMORY, memory(16 * MIB))
    here.restart(tenant.kill)
    # The simulated card may still be closing the file.
    until(lambda: (here.used_mib(tenant), here.used_mib(other)) == (0, 16), "its charge has ended")
    assert here.engine.state(tenant.id).objects == 0


def test_files_passed_to_another_tenant_are_refused(here: World) -> None:
    one, other = here.tenant(), here.tenant()
    client = one.client()
    stolen = other.alloc(client, 0xD0, 0x100, MEMORY, memory(MIB))
    assert stolen.u32(STATUS) == INVALID_CLIENT


def test_processes_are_named_as_the_caller_sees_them(here: World) -> None:
    tenant, other = here.tenant(), here.tenant()
    client = tenant.client()
    other.client()
    make(tenant, client, 0xD0, 0x100, MEMORY, memory(MIB))
    pids = tenant.control(client, 0xD1, PIDS, struct.pack("III", 0, 0, 0).ljust(3812, b"\0"))
    assert struct.unpack_from("4I", pids.params) == (0, 0, 1, tenant.pid)
    asked = struct.pack("IIIIIIQ", 1, 0, tenant.pid, 0, 0, 0, 0).ljust(14408, b"\0")
    use = tenant.control(client, 0xD1, PID_INFO, asked)
    assert struct.unpack_from("Q", use.params, 8 + 16) == (MIB,)


def test_work_is_seen_in_userd_and_the_offline_group_is_taken_off(here: World) -> None:
    offline, online = here.tenant(offline=True), here.tenant()
    off_client, on_client = offline.client(), online.client()
    assert offline.tell("put", working_group(offline, off_client), 3) == "put"
    until(lambda: here.groups() == {GROUP_HANDLE: True}, "it has work, and the card to itself")
    assert here.engine.sched(offline.id).preemptions == 0
    assert online.tell("put", working_group(online, on_client), 3) == "put"
    until(lambda: here.engine.sched(offline.id).preemptions == 1, "offline gives way")

    def enabled() -> dict[int, bool]:
        return {one.tgid: one.open for one in here.card.account().cards[0].engines[0].groups}

    until(lambda: enabled() == {offline.pid: False, online.pid: True}, "so it is on the card")


def unlocated(here: World) -> tuple[Tenant, Tenant]:
    """Offline work whose control file is in a message when online work begins."""
    offline, online = here.tenant(offline=True), here.tenant()
    off_client, on_client = offline.client(), online.client()
    assert offline.tell("put", working_group(offline, off_client), 3) == "put"
    until(lambda: here.groups() == {GROUP_HANDLE: True}, "it has the card to itself")
    assert offline.tell("send", offline.ctl) == "0"
    assert online.tell("put", working_group(online, on_client), 3) == "put"
    return offline, online


def test_tenant_with_an_unlocated_file_is_reported_unsuspendable(here: World) -> None:
    here.patience(0)
    offline, online = unlocated(here)
    until(
        lambda: here.engine.state(offline.id).unsuspendable == Unsuspendable.HIDDEN, "it cannot be suspended"
    )
    assert here.engine.state(online.id).unsuspendable == Unsuspendable.SUSPENDABLE


def test_file_that_is_shown_in_time_is_suspended_through(here: World) -> None:
    here.patience(1 << 62)
    offline, _online = unlocated(here)
    until(lambda: here.engine.stats().suspend_failures > 0, "it could not be suspended at once")
    offline.ctl = int(offline.tell("receive"))

    def enabled() -> bool:
        [group] = [one for one in here.card.account().cards[0].engines[0].groups if one.tgid == offline.pid]
        return bool(group.open)

    until(lambda: not enabled(), "it is found again, and off the card")
    assert here.engine.state(offline.id).unsuspendable == Unsuspendable.SUSPENDABLE


def card_file(tenant: Tenant) -> int:
    """A card's file of its own for an event, as libcuda opens one for each."""
    node = tenant.open(CARD)
    assert tenant.ioctl(node, REGISTER_FD, struct.pack("i", tenant.ctl)).result == 0
    return node


def os_event(tenant: Tenant, node: int, client: int, number: int = ALLOC_OS_EVENT) -> int:
    answer = tenant.ioctl(node, number, struct.pack("IIiI", client, 0xD0, node, 0xFFFF))
    assert (answer.result, answer.through) == (0, False)
    return answer.u32(12)


def event(tenant: Tenant, client: int, handle: int, of: int, *, on: int, fd: int) -> int:
    params = struct.pack("IIIIQ", of, 0xD1, EVENT_OS, 0, fd)
    answer = tenant.alloc(client, 0xD1, handle, EVENT_OS, params, fd=on)
    assert (answer.result, answer.through) == (0, False)
    return answer.u32(STATUS)


def test_events_are_made_on_a_cards_file_as_libcuda_does(here: World) -> None:
    """The order of libcuda 555: a new file of the card, registered, told as an event's, and the event on
    it."""
    tenant, client = here.tenant_client()
    node = card_file(tenant)
    assert os_event(tenant, node, client) == 0
    assert event(tenant, client, 0x200, client, on=node, fd=node) == 0
    # RM takes it on the control file too, and another event of the same descriptor.
    assert event(tenant, client, 0x201, 0, on=tenant.ctl, fd=node) == 0
    # RM looks for the descriptor's number alone, and only for those that it was told.
    assert event(tenant, client, 0x202, client, on=node, fd=tenant.card) == NOT_FOUND
    assert [tenant.free(client, handle).u32(0xC) for handle in (0x200, 0x201)] == [0, 0]
    assert os_event(tenant, node, client, FREE_OS_EVENT) == 0
    assert os_event(tenant, node, client, FREE_OS_EVENT) == INVALID_EVENT


def test_events_are_made_on_another_control_file_as_compute_sanitizer_does(here: World) -> None:
    tenant, other = here.tenant(), here.tenant()
    client = tenant.client()
    node, control = card_file(tenant), tenant.open(CTL)
    assert os_event(tenant, node, client) == 0
    assert event(tenant, client, 0x200, client, on=control, fd=node) == 0
    assert tenant.free(client, 0x200).u32(0xC) == 0
    assert event(other, client, 0x201, client, on=other.open(CTL), fd=node) == INVALID_CLIENT


def test_card_file_refuses_classes_other_than_events(here: World) -> None:
    tenant, client = here.tenant_client()
    node = card_file(tenant)
    assert tenant.alloc(client, 0xD0, 0x100, MEMORY, memory(MIB), fd=node).u32(STATUS) == INVALID_CLIENT
    stray = tenant.open(CARD)
    assert os_event(tenant, stray, client) == 0
    assert event(tenant, client, 0x200, client, on=stray, fd=stray) == INVALID_CLIENT


def test_os_event_of_another_tenant_is_refused(here: World) -> None:
    tenant, other = here.tenant(), here.tenant()
    client, its = tenant.client(), other.client()
    node = card_file(tenant)
    assert os_event(other, other.card, client) == INVALID_CLIENT
    assert os_event(other, other.card, client, FREE_OS_EVENT) == INVALID_CLIENT
    assert os_event(tenant, node, client) == 0
    assert os_event(other, other.card, its) == 0
    # Nor is told of what happens to another's objects.
    assert event(other, its, 0x200, client, on=other.card, fd=other.card) == INVALID_CLIENT


def test_events_file_is_told_once_whichever_engine_did(here: World) -> None:
    tenant, client = here.tenant_client()
    node = card_file(tenant)
    assert os_event(tenant, node, client) == 0
    here.restart()
    assert event(tenant, client, 0x200, client, on=node, fd=node) == 0
    assert tenant.free(client, 0x200).u32(0xC) == 0


def test_nvidia_uvm_runs_in_its_caller_but_moves_no_memory_that_is_not_charged(here: World) -> None:
    tenant = here.tenant()
    assert tenant.ioctl(tenant.uvm, UVM_INITIALIZE).through
    assert tenant.ioctl(tenant.uvm, UVM_POPULATE_PAGEABLE).result == -errno.EPERM
    client = tenant.client()
    control = struct.pack("IIIIQII", client, client, ATTACHED, 0, 0, 128, 0)
    assert tenant.ioctl(tenant.uvm, CONTROL, control).result == -errno.ENOTTY
    # And none of its commands on another node's file.
    assert tenant.ioctl(tenant.ctl, UVM_MIGRATE).result == -errno.ENOTTY


def disable(client: int, *channels: int, on: bool = False) -> bytes:
    params = bytearray(536)
    struct.pack_into("B3xI", params, 0, not on, len(channels))
    for i, channel_handle in enumerate(channels):
        struct.pack_into("I", params, 0x18 + 4 * i, client)
        struct.pack_into("I", params, 0x118 + 4 * i, channel_handle)
    return bytes(params)


def test_tenant_may_disable_its_own_channels_and_no_others(here: World) -> None:
    tenant, other = here.tenant(), here.tenant()
    client, its = tenant.client(), other.client()
    working_group(tenant, client)

    def says(who: Tenant, params: bytes, thing: int = 0xD1, root: int = 0) -> int:
        answer = who.control(root or (client if who is tenant else its), thing, DISABLE, params)
        assert (answer.result, answer.through) == (0, False)
        return answer.u32(0x1C)

    until(lambda: here.groups() == {GROUP_HANDLE: True}, "it runs")
    for params in (disable(client, CHANNEL), disable(its, CHANNEL), disable(client, 0xBAD)):
        assert says(other, params) == INSUFFICIENT
    # One that is another's among its own: nothing is done.
    assert says(tenant, disable(client, CHANNEL, 0xBAD)) == INSUFFICIENT
    assert here.groups() == {GROUP_HANDLE: True}
    assert says(tenant, disable(client, CHANNEL), thing=0xD0) == INVALID_HANDLE
    rewinding = bytearray(disable(client, CHANNEL))
    rewinding[9] = 1
    assert says(tenant, bytes(rewinding)) == INVALID_ARGUMENT
    assert says(tenant, disable(client, CHANNEL)) == 0
    assert here.groups() == {GROUP_HANDLE: False}
    assert says(tenant, disable(client, CHANNEL, on=True)) == 0
    assert here.groups() == {GROUP_HANDLE: True}


def test_disabled_channels_survive_a_restart(here: World) -> None:
    tenant, client = here.tenant_client()
    beside, its_channel = 0x910, 0x912
    working_group(tenant, client)
    make(tenant, client, 0xD0, beside, GROUP, group())
    make(tenant, client, beside, its_channel, HOPPER, channel(USERD))

    def says(thing: int, command: int, params: bytes) -> None:
        answer = tenant.control(client, thing, command, params)
        assert (answer.result, answer.u32(0x1C)) == (0, 0)

    says(beside, SCHEDULE, b"\x01\x00\x00")
    says(0xD1, DISABLE, disable(client, CHANNEL, its_channel))
    says(0xD1, DISABLE, disable(client, its_channel, on=True))
    here.engine.pause(tenant.id, True)
    until(lambda: here.groups() == {GROUP_HANDLE: False, beside: False}, "it is suspended")
    here.restart()
    until(lambda: here.groups()[beside], "the next engine lets it run")
    # Asked for once more, a group is brought to what its tenant wants before the call is answered.
    says(GROUP_HANDLE, SCHEDULE, b"\x01\x00\x00")
    assert here.groups() == {GROUP_HANDLE: False, beside: True}
    says(0xD1, DISABLE, disable(client, CHANNEL, on=True))
    assert here.groups() == {GROUP_HANDLE: True, beside: True}


def test_suspended_tenant_does_not_enable_itself(here: World) -> None:
    tenant, client = here.tenant_client()
    working_group(tenant, client)
    here.engine.pause(tenant.id, True)
    until(lambda: here.groups() == {GROUP_HANDLE: False}, "it is suspended")
    answer = tenant.control(client, 0xD1, DISABLE, disable(client, CHANNEL, on=True))
    assert (answer.result, answer.u32(0x1C)) == (0, 0)
    assert here.groups() == {GROUP_HANDLE: False}
    here.engine.pause(tenant.id, False)
    until(lambda: here.groups() == {GROUP_HANDLE: True}, "it is resumed")


def test_group_that_cannot_be_freed_stays_charged(here: World) -> None:
    tenant, client = here.tenant_client(cap_mib=16 << 10)
    # Where each group is suspended by a call of its own, there is none for the 17th.
    here.refuses(escape=FREE, control=DISABLE)
    for number in range(16):
        make(tenant, client, 0xD0, GROUP_HANDLE + number, GROUP, group())
    answer = tenant.alloc(client, 0xD0, GROUP_HANDLE + 16, GROUP, group())
    assert answer.u32(STATUS) == NO_MEMORY
    assert here.used_mib(tenant) == 17 * CONTEXT_MIB
    assert here.card.account().cards[0].used_bytes == 17 * CARD_CONTEXT_MIB * MIB
    here.refuses(control=DISABLE)
    assert tenant.alloc(client, 0xD0, GROUP_HANDLE + 17, GROUP, group()).u32(STATUS) == NO_MEMORY
    assert here.used_mib(tenant) == 17 * CONTEXT_MIB


def test_controls_that_are_not_known_stay_refused(here: World) -> None:
    tenant, client = here.tenant_client()
    for command in (
        nv.NV0000_CTRL_CMD_OS_UNIX_GET_CONTROL_FILE_DESCRIPTOR,
        nv.NV00FD_CTRL_CMD_GET_INFO,
        nv.NV2080_CTRL_CMD_FB_GET_INFO,
        nv.NV2080_CTRL_CMD_GR_GET_NUM_TPCS_FOR_GPC,
    ):
        answer = tenant.control(client, client, command, bytes(16))
        assert (answer.result, answer.u32(0x1C)) == (0, NOT_SUPPORTED), hex(command)


def test_drivers_own_account_of_the_card_is_not_for_tenants(here: World) -> None:
    """RM_USER_SHARED_DATA is a page of the host's own, below the device; the control that has it written is
    refused."""
    tenant, client = here.tenant_client()
    wrong = tenant.alloc(client, 0xD0, 0x300, 0xDE, bytes(8))
    assert (wrong.result, wrong.u32(STATUS)) == (0, INVALID_PARENT)
    answer = tenant.alloc(client, 0xD1, 0x300, 0xDE, bytes(8))
    assert (answer.result, answer.u32(STATUS), answer.through) == (0, 0, False)
    assert (answer.u32(8), answer.u32(12)) == (0x300, 0xDE)
    assert answer.params == bytes(8)
    polled = tenant.control(client, 0x300, nv.NV00DE_CTRL_CMD_REQUEST_DATA_POLL, bytes(8))
    assert (polled.result, polled.u32(0x1C)) == (0, NOT_SUPPORTED)


def test_drivers_own_account_is_for_whole_cards(here: World) -> None:
    """Nobody else works there: the driver's object is made below the subdevice, and polled."""
    tenant = here.tenant()
    here.engine.whole(tenant.id)
    client = tenant.client()
    assert tenant.alloc(client, 0xD1, 0x300, nv.RM_USER_SHARED_DATA, bytes(8)).u32(STATUS) == 0
    polled = tenant.control(client, 0x300, nv.NV00DE_CTRL_CMD_REQUEST_DATA_POLL, bytes(8))
    assert (polled.result, polled.u32(0x1C)) == (0, 0)


def test_engine_that_ends_at_once_leaves_no_listener(here: World) -> None:
    tenant = here.tenant()
    before = len(os.listdir("/proc/self/task"))
    for _ in range(60):
        here.restart()
    assert len(os.listdir("/proc/self/task")) == before
    tenant.client()
