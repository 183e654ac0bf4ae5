"""MIG instances as cards of their own: subscriptions, what they are scoped to, and whose work gives way to
whose.
"""

import errno
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from native_sched.daemon.engine_abi import Without
from tests.native.nvidia_mediated import Answer, Tenant, World, world
from tests.native.rm_params import (
    CONTEXT_MIB,
    CONTROL,
    CTL,
    FREE,
    GROUP,
    HOPPER,
    MAP,
    MEMORY,
    MEMORY_SYSTEM,
    MIB,
    ROOT,
    alloc_struct,
    channel,
    group,
    host_memory,
    memory,
)
from tests.support import rm_numbers as nv
from tests.support.waiting import until

GPU_INSTANCE, COMPUTE_INSTANCE = nv.AMPERE_SMC_PARTITION_REF, nv.AMPERE_SMC_EXEC_PARTITION_REF
MIG_CONFIG, MIG_MONITOR = nv.AMPERE_SMC_CONFIG_SESSION, nv.AMPERE_SMC_MONITOR_SESSION
ACTIVE_DEVICES = nv.NV0000_CTRL_CMD_GPU_GET_ACTIVE_DEVICE_IDS
ACTIVE_PARTITIONS = nv.NV2080_CTRL_CMD_GPU_GET_ACTIVE_PARTITION_IDS
INVALID_ARGUMENT = nv.NV_ERR_INVALID_ARGUMENT
ATTACHED, PID_INFO = nv.NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS, nv.NV2080_CTRL_CMD_GPU_GET_PID_INFO
SCHEDULE, GROUP_INFO = nv.NVA06C_CTRL_CMD_GPFIFO_SCHEDULE, nv.NVA06C_CTRL_CMD_GET_INFO
OK, INSUFFICIENT = 0, nv.NV_ERR_INSUFFICIENT_PERMISSIONS
DUPLICATE = nv.NV_ERR_INSERT_DUPLICATE_NAME
INVALID_CLIENT, INVALID_PARENT = nv.NV_ERR_INVALID_CLIENT, nv.NV_ERR_INVALID_OBJECT_PARENT
NOT_SUPPORTED = nv.NV_ERR_NOT_SUPPORTED
STATUS, CONTROL_STATUS = 0x28, 0x1C
GI, CI = 0xD2, 0xD3
PROFILING = 0xFFFFFFFE
INSTANCES = [(3, 0), (5, 1)]


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path, INSTANCES) as made:
        yield made


def instance(number: int, descriptor: int | None = None) -> bytes:
    """Parameters of both classes; the capability of instance N is descriptor 100 + N here."""
    return struct.pack("QII", 100 + number if descriptor is None else descriptor, number, 0)


def mig_subscribe(
    tenant: Tenant,
    client: int,
    number: int,
    handle: int = GI,
    *,
    class_id: int = GPU_INSTANCE,
    flip: bytes = b"",
) -> Answer:
    parent = 0xD1 if class_id == GPU_INSTANCE else GI
    return tenant.alloc(client, parent, handle, class_id, instance(number), flip=flip)


def subscribed(tenant: Tenant, gpu: int, compute: int) -> int:
    """A client with both of its subscriptions."""
    client = tenant.client()
    for class_id, number, handle in ((GPU_INSTANCE, gpu, GI), (COMPUTE_INSTANCE, compute, CI)):
        answer = mig_subscribe(tenant, client, number, handle, class_id=class_id)
        assert (answer.result, answer.u32(STATUS), answer.through) == (0, OK, True), hex(class_id)
    return client


def alive(tenant: Tenant, client: int) -> int:
    return tenant.control(client, client, ATTACHED, bytes(128)).result


def refused(answer: Answer) -> int:
    """The status of one that was not continued."""
    assert (answer.result, answer.through) == (0, False)
    return answer.u32(STATUS)


def test_tenant_subscribes_to_its_instance_and_works_there(here: World) -> None:
    tenant = here.tenant(cap_mib=1024, card=1)
    client = subscribed(tenant, 5, 1)
    made = tenant.alloc(client, 0xD0, 0x100, MEMORY, memory(48 * MIB))
    assert refused(made) == OK
    assert refused(tenant.alloc(client, 0xD0, 0x900, GROUP, group())) == OK
    assert here.used_mib(tenant, 1) == 48 + CONTEXT_MIB
    assert here.used_mib(tenant, 0) == 0
    asked = struct.pack("IIIIIIQ", 1, 0, tenant.pid, 0, 0, 0, 0).ljust(14408, b"\0")
    use = tenant.control(client, 0xD1, PID_INFO, asked)
    assert struct.unpack_from("Q", use.params, 8 + 16) == ((48 + CONTEXT_MIB) * MIB,)
    assert struct.unpack_from("II", use.params, 8 + 64) == (1, 5), "compute instance, GPU instance"
    assert tenant.free(client, 0xD0).u32(0xC) == OK
    assert here.used_mib(tenant, 1) == 0
    assert here.engine.state(tenant.id).objects == 1


@pytest.mark.parametrize("number", [0, 3, 4, PROFILING])
def test_other_gpu_instance_is_refused(here: World, number: int) -> None:
    tenant, client = here.tenant_client(card=1)
    assert refused(mig_subscribe(tenant, client, number)) == INSUFFICIENT
    assert mig_subscribe(tenant, client, 5).through


def test_other_compute_instance_is_refused(here: World) -> None:
    tenant, client = here.tenant_client(card=1)
    assert mig_subscribe(tenant, client, 5).through
    for number in (0, 2, 5):
        answer = mig_subscribe(tenant, client, number, CI, class_id=COMPUTE_INSTANCE)
        assert refused(answer) == INSUFFICIENT
    assert mig_subscribe(tenant, client, 1, CI, class_id=COMPUTE_INSTANCE).through


def test_subscription_is_below_its_subdevice(here: World) -> None:
    tenant, other = here.tenant(card=1), here.tenant(card=1)
    client, its = tenant.client(), other.client()
    for parent in (client, 0xD0, 0xBAD):
        assert refused(tenant.alloc(client, parent, GI, GPU_INSTANCE, instance(5))) == INVALID_PARENT
    assert refused(tenant.alloc(client, 0xD1, CI, COMPUTE_INSTANCE, instance(1))) == INVALID_PARENT
    assert refused(other.alloc(client, 0xD1, GI, GPU_INSTANCE, instance(5))) == INVALID_CLIENT
    assert refused(tenant.alloc(client, 0xD1, GI, GPU_INSTANCE)) == INVALID_ARGUMENT
    assert refused(mig_subscribe(tenant, client, 5, 0xD0)) == DUPLICATE
    assert alive(tenant, client) == alive(other, its) == 0


def test_whole_gpu_takes_no_subscription(tmp_path: Path) -> None:
    with world(tmp_path) as here:
        tenant, client = here.tenant_client()
        assert refused(mig_subscribe(tenant, client, 0)) == NOT_SUPPORTED
        assert refused(mig_subscribe(tenant, client, 0xFFFFFFFF)) == NOT_SUPPORTED


@pytest.mark.parametrize("class_id", [MIG_CONFIG, MIG_MONITOR])
def test_sessions_of_operators_are_refused_as_without_their_capability(here: World, class_id: int) -> None:
    tenant, client = here.tenant_client(card=1)
    assert refused(tenant.alloc(client, client, 0x200, class_id, bytes(8))) == INSUFFICIENT


def test_arbiter_has_the_session_that_its_audits_need(here: World) -> None:
    assert here.monitors == 1


def test_handle_that_the_driver_is_to_choose_is_known(here: World) -> None:
    tenant, client = here.tenant_client(card=1)
    answer = mig_subscribe(tenant, client, 5, 0)
    assert (answer.through, answer.u32(STATUS)) == (True, OK)
    handle = answer.u32(8)
    assert handle
    below = tenant.alloc(client, handle, CI, COMPUTE_INSTANCE, instance(1))
    assert (below.through, below.u32(STATUS)) == (True, OK)
    assert alive(tenant, client) == 0
    objects = here.engine.state(tenant.id).objects
    assert objects == 5, "client, device, subdevice and both subscriptions"


def test_subscription_that_rm_refuses_ends_its_tenant(here: World) -> None:
    """The descriptor is of no capability of that instance. Only its caller knows what the call did."""
    tenant, other = here.tenant(card=1), here.tenant(card=1)
    client, well = tenant.client(), other.client()
    wrong = tenant.alloc(client, 0xD1, GI, GPU_INSTANCE, instance(5, descriptor=7))
    assert (wrong.through, wrong.u32(STATUS)) == (True, INSUFFICIENT)
    assert alive(tenant, client) == -1
    assert here.engine.state(tenant.id).unaccounted_bytes == 1
    assert alive(other, well) == 0


def test_subscription_flipped_to_memory_costs_every_answer(here: World) -> None:
    tenant, other = here.tenant(card=1), here.tenant(card=1)
    client, well = tenant.client(), other.client()
    flipped = alloc_struct(client, 0xD0, 0x100, MEMORY, 128)
    params = instance(5) + memory(MIB)[16:]
    outer = alloc_struct(client, 0xD1, GI, GPU_INSTANCE, 0)
    answer = tenant.ioctl(tenant.ctl, 0x2B, outer, params, at=0x10, flip=flipped)
    assert (answer.result, answer.through) == (0, True)
    assert answer.u32(STATUS) == OK
    assert alive(tenant, client) == -1
    assert here.engine.state(tenant.id).unaccounted_bytes == MIB
    assert alive(other, well) == 0


def flipped_group(tenant: Tenant, client: int, handle: int) -> Answer:
    params = bytearray(group())
    flip = alloc_struct(client, 0xD0, handle, GROUP, 20)
    outer = alloc_struct(client, 0xD1, 0x300 + handle, GPU_INSTANCE, 0)
    # One struct is both: instance 5 at 8, where a group has its address space, which is called so.
    assert tenant.alloc(client, 0xD0, 5, nv.FERMI_VASPACE_A, bytes(48)).u32(STATUS) == OK
    struct.pack_into("QI", params, 0, 105, 5)
    return tenant.ioctl(tenant.ctl, 0x2B, outer, bytes(params), at=0x10, flip=flip)


def test_group_of_a_flipped_subscription_never_runs_and_ends_its_tenant(here: World) -> None:
    tenant, client = here.tenant_client(cap_mib=8192, card=1)
    answer = flipped_group(tenant, client, 0xA0)
    assert (answer.through, answer.u32(STATUS)) == (True, OK)
    assert tenant.control(client, 0xA0, SCHEDULE, b"\x01\x00\x00").result == -errno.EPERM
    assert not any(here.groups().values()), "by now it may be freed"
    assert tenant.alloc(0, 0, 0, ROOT).result == -errno.EPERM


def test_subscriptions_that_turn_out_to_be_such_are_not_held_against_a_tenant(here: World) -> None:
    tenant, client = here.tenant_client(card=1)
    for _ in range(12):
        assert mig_subscribe(tenant, client, 5).u32(STATUS) == OK
        assert tenant.free(client, GI).u32(0xC) == OK


def test_unconfirmed_subscription_ends_with_its_file(here: World) -> None:
    tenant, client = here.tenant_client(card=1)
    for number in range(4):
        assert mig_subscribe(tenant, client, 5, GI + number).through
    tenant.kill()
    until(lambda: here.engine.state(tenant.id).files == 0, "its files are gone")
    assert here.engine.state(tenant.id).objects == 0


def test_subscriptions_survive_a_restart(here: World) -> None:
    tenant = here.tenant(card=1)
    client = subscribed(tenant, 5, 1)
    here.restart()
    assert alive(tenant, client) == 0
    assert here.engine.state(tenant.id).objects == 5
    assert refused(tenant.alloc(client, 0xD0, 0x100, MEMORY, memory(MIB))) == OK
    assert here.used_mib(tenant, 1) == 1


def test_freed_subscription_closes_no_descriptor_of_mgpud(here: World) -> None:
    """RM closes its duplicate of the capability by its number, in the process that frees."""
    tenant = here.tenant(card=1)
    client = subscribed(tenant, 5, 1)
    mine = os.open("/dev/null", os.O_RDONLY)
    try:
        here.closes(mine)
        for handle in (CI, GI, 0xBAD, 0xD0, client):
            tenant.ioctl(tenant.ctl, FREE, struct.pack("IIII", client, client, handle, 0))
            os.fstat(mine)
    finally:
        here.closes(-1)
        os.close(mine)
    assert here.engine.state(tenant.id).objects == 0


def test_second_instance_of_a_card_is_refused(here: World) -> None:
    here.engine.add_tenant(77)
    here.engine.grant(77, 0, MIB)
    here.engine.grant(77, 0, 2 * MIB)
    with pytest.raises(FileExistsError):
        here.engine.grant(77, 1, MIB)
    here.engine.remove_tenant(77)


def working(tenant: Tenant, client: int) -> int:
    """A group with a channel that has work; the descriptor that maps its USERD."""
    for parent, handle, class_id, params in (
        (0xD0, 0x900, GROUP, group()),
        (0xD0, 0x901, MEMORY_SYSTEM, host_memory(65536)),
        (0x900, 0x902, HOPPER, channel(0x901)),
    ):
        assert refused(tenant.alloc(client, parent, handle, class_id, params)) == OK
    assert tenant.control(client, 0x900, SCHEDULE, b"\x01\x00\x00").u32(CONTROL_STATUS) == OK
    view = tenant.open(CTL)
    outer = struct.pack("IIIIQQQIIiI", client, 0xD0, 0x901, 0, 0, 65536, 0, 0, 0, view, 0)
    assert tenant.ioctl(tenant.ctl, MAP, outer).through
    assert tenant.tell("put", view, 3) == "put"
    return view


def enabled(here: World) -> dict[int, bool]:
    engine = next(e for e in here.card.account().cards[0].engines if e.engine == "graphics")
    return {one.tgid: one.open for one in engine.groups}


def test_work_takes_others_off_its_own_instance_and_off_no_other(here: World) -> None:
    offline, beside = here.tenant(offline=True, card=0), here.tenant(offline=True, card=1)
    online, idle = here.tenant(card=1), here.tenant(card=0)
    working(offline, subscribed(offline, 3, 0))
    working(beside, subscribed(beside, 5, 1))
    until(lambda: enabled(here) == {offline.pid: True, beside.pid: True}, "each has its instance to itself")
    working(online, subscribed(online, 5, 1))
    until(lambda: here.engine.sched(beside.id).preemptions == 1, "offline gives way on the same instance")
    until(
        lambda: enabled(here) == {offline.pid: True, beside.pid: False, online.pid: True}, "and there alone"
    )
    assert here.engine.sched(offline.id).preemptions == 0
    working(idle, subscribed(idle, 3, 0))
    until(lambda: here.engine.sched(offline.id).preemptions == 1, "as it would on its own")


@pytest.fixture
def seen(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path, INSTANCES, seen=True) as made:
        yield made


def tsg(tenant: Tenant, client: int) -> int:
    number: int = struct.unpack("I", tenant.control(client, 0x900, GROUP_INFO, bytes(4)).params)[0]
    return number


def looked(here: World) -> None:
    """Returns when everything has been looked at, some times."""
    polls = here.engine.stats().polls
    until(lambda: here.engine.stats().polls > polls + 16, "the scheduler polls")


def busy(here: World, tenant: Tenant) -> bool:
    return bool(here.engine.sched(tenant.id).busy)


def test_instance_is_seen_idle_by_its_own_engines(seen: World) -> None:
    offline, online = seen.tenant(offline=True, card=0), seen.tenant(card=0)
    client = subscribed(online, 3, 0)
    view = working(online, client)
    working(offline, subscribed(offline, 3, 0))
    until(lambda: enabled(seen) == {offline.pid: False, online.pid: True}, "online work comes first")
    seen.registers.executes(0, tsg(online, client))
    online.tell("get", view, 3)
    looked(seen)
    assert busy(seen, online), "all of it has been fetched, and executes"
    # What other instances do, with groups of the same number, is theirs.
    seen.registers.executes(1, tsg(online, client))
    seen.registers.executes(0, None)
    until(lambda: not busy(seen, online), "its work has ended")
    until(lambda: seen.engine.sched(offline.id).run_ns > 0, "offline work has its turn")
    assert [seen.engine.without(card) for card in (0, 1)] == [{}, {}]


def test_number_of_a_group_is_that_of_its_engine(seen: World) -> None:
    """RM counts the groups of each runlist for itself."""
    tenant, beside = seen.tenant(card=0), seen.tenant(offline=True, card=0)
    client = subscribed(tenant, 3, 0)
    view = working(tenant, client)
    working(beside, subscribed(beside, 3, 0))
    until(lambda: busy(seen, tenant), "it has work")
    tenant.tell("get", view, 3)
    until(lambda: not busy(seen, tenant), "it has none")
    seen.registers.executes(0, tsg(tenant, client), copies=True)
    looked(seen)
    assert not busy(seen, tenant), "somebody else's copies"
    seen.registers.executes(0, tsg(tenant, client))
    until(lambda: busy(seen, tenant), "its own work")


def test_instance_that_is_not_seen_has_online_idle_by_fetch_alone(here: World) -> None:
    offline, online = here.tenant(offline=True, card=0), here.tenant(card=0)
    view = working(online, subscribed(online, 3, 0))
    working(offline, subscribed(offline, 3, 0))
    until(lambda: enabled(here) == {offline.pid: False, online.pid: True}, "online work comes first")
    online.tell("get", view, 3)
    until(lambda: not busy(here, online), "all of it has been fetched")
    until(lambda: here.engine.sched(offline.id).run_ns > 0, "offline work has its turn")
    assert list(here.engine.without(0)) == [Without.ENGINE_STATUS, Without.UTILIZATION]


def mig_subscriptions(here: World) -> int:
    """How many the arbiter has to instances."""
    return int(here.lib.on_card_subscriptions())


def test_instance_has_a_subscriber_while_its_channels_are_seen(seen: World) -> None:
    assert mig_subscriptions(seen) == 0
    tenant, beside = seen.tenant(card=1), seen.tenant(card=1)
    working(tenant, subscribed(tenant, 5, 1))
    working(beside, subscribed(beside, 5, 1))
    assert mig_subscriptions(seen) == 2, "to the GPU instance and the compute instance, by one client"
    tenant.kill()
    until(lambda: seen.engine.state(tenant.id).objects == 0, "its channel is gone")
    assert mig_subscriptions(seen) == 2
    beside.kill()
    until(lambda: seen.engine.state(beside.id).objects == 0, "so is the last")
    until(lambda: mig_subscriptions(seen) == 0, "the instance may be deleted")


def test_lists_of_instances_have_the_tenants_own(here: World) -> None:
    tenant = here.tenant(card=1)
    client = subscribed(tenant, 5, 1)
    devices = tenant.control(client, client, ACTIVE_DEVICES, bytes(3076))
    assert (devices.result, devices.u32(CONTROL_STATUS)) == (0, OK)
    count, gpu_id, *instance = struct.unpack_from("4I", devices.params)
    assert (count, instance) == (1, [5, 1])
    assert gpu_id
    assert not any(devices.params[16:])
    partitions = tenant.control(client, 0xD1, ACTIVE_PARTITIONS, bytes(40))
    assert struct.unpack("10I", partitions.params) == (5, *[0xFFFFFFFF] * 8, 1)
    assert tenant.control(client, 0xD1, ACTIVE_PARTITIONS, bytes(36)).u32(CONTROL_STATUS) == INVALID_ARGUMENT


def test_controls_outside_the_list_stay_refused(here: World) -> None:
    tenant = here.tenant(card=1)
    client = subscribed(tenant, 5, 1)
    # Making, deleting, exporting and importing instances.
    for command in (
        nv.NVC637_CTRL_CMD_EXEC_PARTITIONS_CREATE,
        nv.NVC637_CTRL_CMD_EXEC_PARTITIONS_DELETE,
        nv.NVC637_CTRL_CMD_EXEC_PARTITIONS_EXPORT,
        nv.NVC637_CTRL_CMD_EXEC_PARTITIONS_IMPORT,
        nv.NV2080_CTRL_CMD_GPU_SET_PARTITIONS,
        nv.NV2080_CTRL_CMD_GPU_SET_PARTITIONING_MODE,
    ):
        outer = struct.pack("IIIIQII", client, GI, command, 0, 0, 16, 0)
        answer = tenant.ioctl(tenant.ctl, CONTROL, outer, bytes(16), at=0x10)
        assert (answer.result, answer.u32(CONTROL_STATUS)) == (0, NOT_SUPPORTED), hex(command)
