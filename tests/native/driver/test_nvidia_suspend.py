"""How tenants are suspended by NVIDIA's driver, and what is done without what it refuses."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from native_sched.daemon.engine_abi import TenantClass, Unsuspendable, Without
from tests.native.nvidia_mediated import Tenant, World, world
from tests.native.retained_steps import CHANNEL as REGISTERED
from tests.native.retained_steps import (
    GROUP_HANDLE,
    NO_MEMORY,
    SCHEDULE,
    STATUS,
    make_space,
    registers,
    registers_space,
    uvm_initialize_file,
    working_group,
)
from tests.native.rm_params import GROUP, HOPPER, MEMORY_SYSTEM, SHARE, channel, group, host_memory
from tests.support import rm_numbers as nv
from tests.support.waiting import until

DISABLE = nv.NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS
TIMESLICE, GROUP_INFO = nv.NVA06C_CTRL_CMD_SET_TIMESLICE, nv.NVA06C_CTRL_CMD_GET_INFO
NOT_SUPPORTED, INVALID_STATE = nv.NV_ERR_NOT_SUPPORTED, nv.NV_ERR_INVALID_STATE
# Of libcuda 555 on Turing (the recording): groups of one context, and the channels of each.
GRAPHICS, COPIES = 1, (9, 10, 11)
CHANNELS = (8, 4, 4, 4)
PROCESSES = 9


@pytest.fixture
def by_runlist(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path, disables=False) as made:
        yield made


def make(tenant: Tenant, client: int, parent: int, handle: int, class_id: int, params: bytes) -> int:
    answer = tenant.alloc(client, parent, handle, class_id, params)
    assert answer.result == 0
    return answer.u32(STATUS)


def context(process: Tenant) -> None:
    """What libcuda makes on Turing."""
    client = process.client()
    assert make(process, client, 0xD0, 0x800, MEMORY_SYSTEM, host_memory(1 << 20)) == 0
    for number, (engine, channels) in enumerate(zip((GRAPHICS, *COPIES), CHANNELS, strict=True)):
        handle = 0x900 + 0x10 * number
        assert make(process, client, 0xD0, handle, GROUP, group(engine)) == 0
        for each in range(1, channels + 1):
            assert make(process, client, handle, handle + each, HOPPER, channel(0x800)) == 0
        scheduled = process.control(client, handle, SCHEDULE, b"\x01\x00\x00")
        assert (scheduled.result, scheduled.u32(0x1C)) == (0, 0)


def test_nine_cuda_processes_of_a_container_are_suspended_by_a_call_each(here: World) -> None:
    tenant = here.tenant(cap_mib=100 << 10)
    for process in (tenant, *(here.mate(tenant) for _ in range(PROCESSES - 1))):
        context(process)
    here.engine.pause(tenant.id, True)
    until(lambda: here.suspended_by() == (0, PROCESSES), "all channels are disabled, no group is taken off")
    until(lambda: not here.engine.sched(tenant.id).enabled, "it is suspended")
    here.engine.pause(tenant.id, False)
    until(lambda: bool(here.engine.sched(tenant.id).enabled), "it is resumed")
    assert here.engine.without(0) == {Without.ENGINE_STATUS: -61}
    assert (here.engine.stats().suspend_failures, here.engine.stats().resume_failures) == (0, 0)


def test_suspended_tenant_is_the_next_engines_too(here: World) -> None:
    """What an earlier engine has disabled is enabled by the next one, and what it had not is disabled."""
    tenant = here.tenant()
    working_group(tenant, tenant.client())
    until(lambda: here.groups() == {GROUP_HANDLE: True}, "it runs")
    here.engine.pause(tenant.id, True)
    until(lambda: here.suspended_by() == (0, 1), "it is suspended")
    here.restart()
    until(lambda: here.groups() == {GROUP_HANDLE: True}, "the next engine lets it run")
    here.restart()
    here.engine.pause(tenant.id, True)
    until(lambda: here.groups() == {GROUP_HANDLE: False}, "so it is suspended again")
    assert here.suspended_by()[0] == 0


def test_groups_are_descheduled_where_channels_cannot_be_disabled(by_runlist: World) -> None:
    here = by_runlist
    tenant, client = here.tenant_client(cap_mib=100 << 10)
    working_group(tenant, client)
    assert here.engine.without(0)[Without.DISABLE_CHANNELS] == NOT_SUPPORTED
    here.engine.pause(tenant.id, True)
    until(lambda: here.groups() == {GROUP_HANDLE: False}, "it is suspended")
    assert here.suspended_by() == (1, 0)
    # One call for each group, sixteen in all.
    for number in range(15):
        assert make(tenant, client, 0xD0, 0xA00 + number, GROUP, group()) == 0
    assert make(tenant, client, 0xD0, 0xA0F, GROUP, group()) == NO_MEMORY


def test_unsupported_disable_channels_is_not_repeated(by_runlist: World) -> None:
    """As after a restart: the groups were there before they could be asked about."""
    here = by_runlist
    tenant = here.tenant()
    working_group(tenant, tenant.client())
    here.restart()
    until(
        lambda: here.engine.without(0).get(Without.DISABLE_CHANNELS) == NOT_SUPPORTED,
        "the driver has been asked, in letting it run",
    )
    here.engine.pause(tenant.id, True)
    until(lambda: here.groups() == {GROUP_HANDLE: False}, "it is suspended")
    assert here.suspended_by() == (1, 0)
    assert here.engine.stats().suspend_failures == 0


def test_suspended_channel_is_not_scheduled_by_itself(by_runlist: World) -> None:
    """Nor when its group has another name, by the channel's registration with nvidia-uvm."""
    here = by_runlist
    tenant, client = here.tenant_client()
    working_group(tenant, client)
    make_space(tenant, client)
    uvm_initialize_file(tenant, tenant.uvm)
    assert registers_space(tenant, client) == 0
    registers(tenant, client)
    until(lambda: here.groups() == {GROUP_HANDLE: True}, "it runs")
    here.engine.pause(tenant.id, True)
    until(lambda: here.groups() == {GROUP_HANDLE: False}, "it is suspended")
    scheduled = tenant.control(client, REGISTERED, nv.NVA06F_CTRL_CMD_GPFIFO_SCHEDULE, b"\x01\x00\x00")
    assert (scheduled.result, scheduled.u32(0x1C)) == (0, 0)
    assert here.groups() == {GROUP_HANDLE: False}


def unregistered(here: World) -> tuple[Tenant, Tenant]:
    """Offline work in a group with a channel that nvidia-uvm knows nothing of, when online work begins."""
    offline = here.tenant(offline=True)
    assert offline.tell("put", working_group(offline, offline.client()), 3) == "put"
    until(lambda: here.groups() == {GROUP_HANDLE: True}, "it has the card to itself")
    here.unschedulable(GROUP_HANDLE)
    online, on_client = here.tenant_client()
    assert make(online, on_client, 0xD0, 0xB00, GROUP, group()) == 0
    assert make(online, on_client, 0xD0, 0xB01, MEMORY_SYSTEM, host_memory(65536)) == 0
    assert make(online, on_client, 0xB00, 0xB02, HOPPER, channel(0xB01)) == 0
    return offline, online


def test_unregistered_channel_does_not_prevent_suspension(here: World) -> None:
    offline, _online = unregistered(here)
    here.engine.pause(offline.id, True)
    until(lambda: here.suspended_by() == (0, 1), "its channels are disabled")
    assert here.engine.state(offline.id).unsuspendable == Unsuspendable.SUSPENDABLE


def test_unsuspendable_tenant_is_reported_in_time(here: World) -> None:
    here.refuses(control=DISABLE)
    here.patience(300_000_000)
    offline, online = unregistered(here)
    here.engine.pause(offline.id, True)
    until(lambda: here.engine.stats().suspend_failures > 2, "it is tried again")
    assert here.engine.state(offline.id).unsuspendable == Unsuspendable.SUSPENDABLE
    until(lambda: here.engine.state(offline.id).unsuspendable == Unsuspendable.REFUSED, "its end is near")
    assert here.engine.state(offline.id).refused == INVALID_STATE
    assert here.engine.state(online.id).unsuspendable == Unsuspendable.SUSPENDABLE


def test_brief_suspend_failure_is_tolerated(by_runlist: World) -> None:
    """As between UNREGISTER_CHANNEL and FREE."""
    here = by_runlist
    here.patience(10_000_000_000)
    offline, _online = unregistered(here)
    here.engine.pause(offline.id, True)
    until(lambda: here.engine.stats().suspend_failures > 2, "it is tried again")
    here.unschedulable(0)
    until(lambda: here.groups()[GROUP_HANDLE] is False, "it is suspended")
    assert here.engine.state(offline.id).unsuspendable == Unsuspendable.SUSPENDABLE


@pytest.mark.parametrize(
    ("control", "escape", "without"),
    [
        (TIMESLICE, 0, Without.TIMESLICES),
        (GROUP_INFO, 0, Without.GROUP_IDS),
        (0, SHARE, Without.USERD),
    ],
)
def test_refused_controls_are_done_without(here: World, control: int, escape: int, without: Without) -> None:
    tenant, client = here.tenant_client()
    here.refuses(escape, control)
    working_group(tenant, client)
    assert here.engine.without(0)[without] == NOT_SUPPORTED
    until(lambda: here.groups() == {GROUP_HANDLE: True}, "it runs")
    here.engine.pause(tenant.id, True)
    until(lambda: here.groups() == {GROUP_HANDLE: False}, "it is suspended")
    here.engine.pause(tenant.id, False)
    until(lambda: here.groups() == {GROUP_HANDLE: True}, "it is resumed")
    assert (here.engine.stats().suspend_failures, here.engine.stats().resume_failures) == (0, 0)


def test_tenant_with_unreadable_work_has_work(here: World) -> None:
    offline, online = here.tenant(offline=True), here.tenant()
    off_client, on_client = offline.client(), online.client()
    assert offline.tell("put", working_group(offline, off_client), 3) == "put"
    until(lambda: here.groups() == {GROUP_HANDLE: True}, "it has the card to itself")
    here.refuses(escape=SHARE)
    working_group(online, on_client)
    until(lambda: here.engine.sched(offline.id).preemptions == 1, "online may have work at any moment")
    polls = here.engine.stats().polls
    until(lambda: here.engine.stats().polls > polls + 20, "it is polled")
    assert here.engine.sched(online.id).busy
    assert not here.engine.sched(offline.id).enabled


def on_one_card(here: World) -> tuple[Tenant, Tenant, int]:
    """Offline and online, both with work; the descriptor of online's USERD."""
    offline, online = here.tenant(offline=True), here.tenant()
    off_client, on_client = offline.client(), online.client()
    view = working_group(online, on_client)
    assert offline.tell("put", working_group(offline, off_client), 3) == "put"
    assert online.tell("put", view, 3) == "put"
    until(lambda: bool(here.engine.sched(online.id).busy), "online has work")
    return offline, online, view


def test_online_is_idle_when_it_has_fetched_all_for_a_while(here: World) -> None:
    """No engine can be seen here."""
    offline, online, view = on_one_card(here)
    until(lambda: not here.engine.sched(offline.id).enabled, "online comes first")
    ran = here.engine.sched(offline.id).run_ns
    online.tell("get", view, 3)
    until(lambda: not here.engine.sched(online.id).busy, "online is idle")
    until(lambda: here.engine.sched(offline.id).run_ns > ran, "offline goes on")
    # When its own kernels end is not known.
    assert here.engine.sched(offline.id).busy


def test_online_tenant_idle_by_fetch_has_work_once_offline(here: World) -> None:
    _offline, online, view = on_one_card(here)
    online.tell("get", view, 3)
    until(lambda: not here.engine.sched(online.id).busy, "online is idle")
    here.engine.schedule(online.id, TenantClass.OFFLINE, 100)
    until(lambda: bool(here.engine.sched(online.id).busy), "its kernel may not have ended")
