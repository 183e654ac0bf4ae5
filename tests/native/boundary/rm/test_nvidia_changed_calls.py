"""Calls that only their caller can make, changed into others after mgpud has looked at them."""

import errno
import struct

from tests.native.nvidia_mediated import Tenant, World
from tests.native.retained_steps import (
    ATTACHED,
    CHANNEL,
    GROUP_HANDLE,
    SCHEDULE,
    STATUS,
    USERD,
    make,
    working_group,
)
from tests.native.rm_params import (
    CTL,
    GROUP,
    HOPPER,
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
from tests.support.waiting import until


def test_call_flipped_to_memory_costs_the_tenant_every_answer(here: World) -> None:
    tenant, other = here.tenant(), here.tenant()
    client, well = tenant.client(), other.client()
    flipped = alloc_struct(client, 0xD0, 0x100, MEMORY, 128)
    answer = tenant.alloc(0, 0, 0, ROOT, memory(MIB), flip=flipped)
    assert (answer.result, answer.u32(STATUS), answer.through) == (0, 0, True)
    attached = bytes(128)
    assert tenant.control(client, client, ATTACHED, attached).result == -errno.EPERM
    assert here.engine.state(tenant.id).unaccounted_bytes == MIB
    assert list(here.engine.stats().audit_mismatches) == [1, *[0] * 31]
    assert other.control(well, well, ATTACHED, attached).result == 0


def flipped_group(tenant: Tenant, client: int, handle: int) -> bool:
    """A root client's allocation that makes a group instead, if it is continued."""
    answer = tenant.alloc(0, 0, 0, ROOT, group(), flip=alloc_struct(client, 0xD0, handle, GROUP, 20))
    assert answer.result == 0
    return answer.through


def test_call_that_has_made_something_else_ends_its_tenant(here: World) -> None:
    """The driver counts a group's contexts to no process."""
    tenant, client = here.tenant_client(cap_mib=8192)
    assert flipped_group(tenant, client, 0xBAD)
    assert tenant.control(client, client, ATTACHED, bytes(128)).result == -errno.EPERM
    assert here.engine.state(tenant.id).unaccounted_bytes == 1


def test_call_that_has_made_something_else_ends_a_tenant_that_makes_no_other(here: World) -> None:
    tenant = here.tenant(cap_mib=8192)
    assert flipped_group(tenant, tenant.client(), 0xBAD)
    until(lambda: here.engine.state(tenant.id).unaccounted_bytes == 1, "it is seen", timeout_s=5)


def test_closing_the_file_hides_no_call_that_has_made_something_else(here: World) -> None:
    """The client was to be made on the file that is closed; the group is a client's of another file."""
    tenant = here.tenant(cap_mib=8192)
    client, beside = tenant.client(), tenant.open(CTL)
    flip = alloc_struct(client, 0xD0, 0xBAD, GROUP, 20)
    tenant.tell("astray", tenant.ctl)
    made = tenant.alloc(0, 0, 0, ROOT, group(), flip=flip, fd=beside)
    assert (made.through, made.u32(STATUS)) == (True, 0)
    tenant.tell("close", beside)
    until(lambda: here.engine.state(tenant.id).unaccounted_bytes == 1, "it is seen", timeout_s=5)


def test_process_that_ends_when_it_has_made_a_client_ends_alone(here: World) -> None:
    tenant = here.tenant()
    client, mate = tenant.client(), here.mate(tenant)
    assert mate.alloc(0, 0, 0, ROOT).through
    mate.kill()
    until(lambda: here.engine.state(tenant.id).objects == 3, "the other one's client is gone")
    assert tenant.control(client, client, ATTACHED, bytes(128)).result == 0


def test_call_is_confirmed_although_its_client_is_in_the_account(here: World) -> None:
    """The engine before died between the two."""
    tenant, client = here.tenant_client()

    def unconfirmed() -> None:
        with (here.journal / f"tenant-{tenant.id}").open("r+b") as journal:
            data = journal.read()
            added = data.index(struct.pack("3I", client, client, ROOT))
            file = data[added + 0x1C : added + 0x24]
            assert any(file)
            journal.seek(data.index(struct.pack("=Q4I", 0, client, 0, client, ROOT)))
            journal.write(file)

    here.restart(unconfirmed)
    assert tenant.control(client, client, ATTACHED, bytes(128)).result == 0
    assert (here.engine.state(tenant.id).unaccounted_bytes, here.engine.state(tenant.id).objects) == (0, 3)


def test_uncounted_group_never_runs(here: World) -> None:
    tenant, client = here.tenant_client(cap_mib=8192)
    make(tenant, client, 0xD0, USERD, MEMORY_SYSTEM, host_memory(65536))
    unknown = 0xBAD
    assert flipped_group(tenant, client, unknown)
    assert tenant.control(client, unknown, SCHEDULE, b"\x01\x00\x00").result == -errno.EPERM
    assert tenant.alloc(client, unknown, CHANNEL, HOPPER, channel(USERD)).result == -errno.EPERM
    assert not any(here.groups().values()), "by now it may be freed"
    # Nor on a file of its own: by the time that the driver looks, the descriptor may be another's.
    assert tenant.alloc(0, 0, 0, ROOT, fd=tenant.open(CTL)).result == -errno.EPERM


def test_clients_that_turn_out_to_be_such_are_not_held_against_a_tenant(here: World) -> None:
    tenant = here.tenant()
    tenant.client()
    for _ in range(10):
        again = tenant.alloc(0, 0, 0, ROOT)
        assert (again.through, again.u32(STATUS)) == (True, 0)
        assert tenant.control(again.u32(8), again.u32(8), ATTACHED, bytes(128)).result == 0


def test_group_with_an_unknown_channel_is_suspended_as_a_whole(here: World) -> None:
    tenant, client = here.tenant_client()
    working_group(tenant, client)
    until(lambda: here.groups() == {GROUP_HANDLE: True}, "it runs")
    here.engine.pause(tenant.id, True)
    until(lambda: here.suspended_by() == (0, 1), "its channel is disabled")
    # Another client on the same file: its call could have put a channel into the group instead.
    second = tenant.alloc(0, 0, 0, ROOT)
    assert (second.through, here.suspended_by()) == (True, (1, 1))
    assert tenant.control(client, client, ATTACHED, bytes(128)).result == 0
    here.engine.pause(tenant.id, False)
    until(lambda: here.groups() == {GROUP_HANDLE: True}, "it is resumed")
    here.engine.pause(tenant.id, True)
    until(lambda: here.groups() == {GROUP_HANDLE: False}, "it is suspended")
    assert here.suspended_by() == (1, 2), "it was a client"
