"""What the driver takes for a channel group is charged while nvidia-uvm retains one of its channels."""

from __future__ import annotations

import errno
import resource
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from nvidia_mediated import World, world
from registered_steps import (
    ATTACHED,
    CHANNEL,
    CONTEXT_MIB,
    GROUP_HANDLE,
    NO_MEMORY,
    REGISTER_STATUS,
    STATUS,
    calls,
    channelled,
    freed,
    freed_while_another_registers,
    grouped,
    known,
    made,
    of_one_group,
    registers,
)
from rm_params import (
    CARD_CONTEXT_MIB,
    GROUP,
    HOPPER,
    MEMORY,
    MIB,
    ROOT,
    UVM,
    UVM_REGISTER_CHANNEL,
    UVM_UNREGISTER_CHANNEL,
    channel,
    group,
    memory,
)
from uvm_params import register_channel, unregister_channel

from tests.support.waiting import until

# As in native_sched/channels/groups.h; and names for as many.
CHANNELS_MAX, MANY = 1024, 0x10000


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


def test_what_is_unregistered_first_ends_with_its_group(here: World) -> None:
    tenant, client = of_one_group(here)
    registers(tenant, client)
    here.lands(tenant, client, CHANNEL)
    assert tenant.uvm_call(UVM_UNREGISTER_CHANNEL, unregister_channel(client, CHANNEL)).through
    here.lets_go(tenant, tenant.uvm)
    freed(tenant, client, CHANNEL)
    assert here.used_mib(tenant) == CONTEXT_MIB
    freed(tenant, client, GROUP_HANDLE)
    assert here.used_mib(tenant) == 0


@pytest.mark.parametrize("above", [CHANNEL, GROUP_HANDLE, 0xD0, 0])
def test_what_is_freed_is_unregistered(here: World, above: int) -> None:
    tenant, client = of_one_group(here)
    registers(tenant, client)
    here.lands(tenant, client, CHANNEL)
    freed(tenant, client, above or client)
    assert (here.retained, here.used_mib(tenant)) == (0, CONTEXT_MIB if above == CHANNEL else 0)
    if above == CHANNEL:
        freed(tenant, client, GROUP_HANDLE)
        assert here.used_mib(tenant) == 0


def test_what_lives_on_stays_registered(here: World) -> None:
    tenant, client = of_one_group(here)
    grouped(tenant, client, 0x910)
    channelled(tenant, client, 0x911, 0x910)
    channelled(tenant, client, 0x912, 0x910)
    for handle in (CHANNEL, 0x911, 0x912):
        registers(tenant, client, handle)
        here.lands(tenant, client, handle)
    freed(tenant, client, GROUP_HANDLE)
    freed(tenant, client, 0x911)
    assert (here.retained, here.unregistered) == (1, 2)


def test_what_it_says_is_not_believed(here: World) -> None:
    """Neither which channel it is, nor on which file."""
    tenant, client = of_one_group(here)
    channelled(tenant, client, 0x911)
    other = known(tenant, tenant.open(UVM))
    registers(tenant, client, 0x911)
    here.lands(tenant, client, CHANNEL, other)
    freed(tenant, client, GROUP_HANDLE)
    assert (here.retained, here.used_mib(tenant)) == (0, 0)


def test_all_files_that_it_is_registered_on_let_go(here: World) -> None:
    tenant, client = of_one_group(here)
    for fd in (tenant.uvm, tenant.open(UVM)):
        registers(tenant, client, fd=fd)
        here.lands(tenant, client, CHANNEL, fd)
    freed(tenant, client, GROUP_HANDLE)
    assert (here.retained, here.unregistered, here.used_mib(tenant)) == (0, 2, 0)


def test_another_tenants_files_are_not_asked(here: World) -> None:
    tenant, client = of_one_group(here)
    other, theirs = of_one_group(here)
    for one, its in ((tenant, client), (other, theirs)):
        registers(one, its)
        here.lands(one, its, CHANNEL)
    here.lands(other, client, CHANNEL)
    freed(tenant, client, GROUP_HANDLE)
    assert here.retained == 2
    assert (here.used_mib(tenant), here.used_mib(other)) == (0, CONTEXT_MIB)


def test_one_that_still_runs_keeps_the_charge(here: World) -> None:
    tenant, client = freed_while_another_registers(here)
    here.lands(tenant, client, CHANNEL)
    calls(tenant, client)
    assert (here.retained, here.used_mib(tenant)) == (1, CONTEXT_MIB)
    assert [use.used_bytes for use in here.engine.processes(tenant.id)] == [CONTEXT_MIB * MIB]
    tenant.tell("join")
    calls(tenant, client)
    assert (here.retained, here.used_mib(tenant)) == (0, 0)


def test_one_that_calls_again_has_run(here: World) -> None:
    tenant, client = freed_while_another_registers(here)
    here.lands(tenant, client, CHANNEL)
    assert tenant.uvm_call(UVM_UNREGISTER_CHANNEL, unregister_channel(1, 2), who="again").through
    assert (here.retained, here.used_mib(tenant)) == (0, 0)
    registers(tenant, client, who="again")
    grouped(tenant, client)
    freed(tenant, client, GROUP_HANDLE)
    assert here.used_mib(tenant) == 0


def test_a_channel_that_is_freed_before_its_group_keeps_the_groups_charge(here: World) -> None:
    tenant, client = of_one_group(here)
    registers(tenant, client, who="aside")
    freed(tenant, client, CHANNEL)
    here.lands(tenant, client, CHANNEL)
    freed(tenant, client, GROUP_HANDLE)
    assert here.used_mib(tenant) == CONTEXT_MIB
    tenant.tell("join")
    calls(tenant, client)
    assert (here.retained, here.used_mib(tenant)) == (0, 0)


def test_a_channel_that_is_taken_back_keeps_the_charge_too(here: World) -> None:
    """The driver has made it, and a tenant has no more channels than the scheduler has room for."""
    tenant = here.tenant()
    client = tenant.client()
    grouped(tenant, client)
    registers(tenant, client, who="aside")
    for one in range(CHANNELS_MAX):
        made(tenant, client, GROUP_HANDLE, MANY + one, HOPPER, channel(0))
    refused = tenant.alloc(client, GROUP_HANDLE, CHANNEL, HOPPER, channel(0))
    assert (refused.result, refused.u32(STATUS)) == (0, NO_MEMORY)
    here.lands(tenant, client, CHANNEL)
    freed(tenant, client, GROUP_HANDLE)
    assert here.used_mib(tenant) == CONTEXT_MIB
    tenant.tell("join")
    calls(tenant, client)
    assert (here.retained, here.used_mib(tenant)) == (0, 0)


@contextmanager
def full(file: Path) -> Iterator[None]:
    """It grows no more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_channel_that_finds_no_room_keeps_the_charge_too(here: World, tmp_path: Path) -> None:
    """The driver has made it, and it was in no books."""
    tenant = here.tenant()
    client = tenant.client()
    grouped(tenant, client)
    registers(tenant, client, who="aside")
    with full(tmp_path / "journal" / f"tenant-{tenant.id}"):
        for handle in count(0x1000):
            if tenant.alloc(client, 0xD0, handle, MEMORY, memory(4096)).u32(STATUS):
                break
        refused = tenant.alloc(client, GROUP_HANDLE, CHANNEL, HOPPER, channel(0))
        assert (refused.result, refused.u32(STATUS)) == (0, NO_MEMORY)
        used_mib = here.used_mib(tenant)
    here.lands(tenant, client, CHANNEL)
    freed(tenant, client, GROUP_HANDLE)
    assert here.used_mib(tenant) == used_mib
    tenant.tell("join")
    calls(tenant, client)
    assert (here.retained, here.used_mib(tenant)) == (0, used_mib - CONTEXT_MIB)


def test_two_channels_of_a_group_are_one_charge(here: World) -> None:
    tenant, client = of_one_group(here)
    channelled(tenant, client, 0x911)
    registers(tenant, client, who="aside")
    freed(tenant, client, GROUP_HANDLE)
    assert here.used_mib(tenant) == CONTEXT_MIB
    here.lands(tenant, client, CHANNEL)
    here.lands(tenant, client, 0x911)
    tenant.tell("join")
    calls(tenant, client)
    assert (here.retained, here.used_mib(tenant)) == (0, 0)


def test_the_last_of_its_channels_ends_the_charge(here: World) -> None:
    tenant, client = of_one_group(here)
    channelled(tenant, client, 0x911)
    registers(tenant, client, who="aside")
    freed(tenant, client, CHANNEL)
    registers(tenant, client, who="aside")
    freed(tenant, client, GROUP_HANDLE)
    tenant.uvm_call(UVM_UNREGISTER_CHANNEL, unregister_channel(1, 2), who="again")
    assert here.used_mib(tenant) == CONTEXT_MIB
    tenant.tell("join")
    calls(tenant, client)
    assert here.used_mib(tenant) == 0


def test_what_registers_later_holds_nothing_up(here: World) -> None:
    tenant, client = freed_while_another_registers(here)
    tenant.tell("join")
    registers(tenant, client, who="aside")
    assert here.used_mib(tenant) == 0


def test_what_is_held_counts_against_the_cap(here: World) -> None:
    tenant = here.tenant(cap_mib=CARD_CONTEXT_MIB + 17)
    client = tenant.client()
    grouped(tenant, client)
    channelled(tenant, client)
    registers(tenant, client, who="aside")
    freed(tenant, client, GROUP_HANDLE)
    refused = tenant.alloc(client, 0xD0, GROUP_HANDLE, GROUP, group())
    assert (refused.result, refused.u32(STATUS)) == (0, NO_MEMORY)
    tenant.tell("join")
    grouped(tenant, client)
    assert here.used_mib(tenant) == CONTEXT_MIB


def test_what_is_held_hides_nothing_from_the_audit(here: World) -> None:
    tenant, client = freed_while_another_registers(here)
    flipped = struct.pack("IIIIQQIIII", client, 0xD0, 0x100, 0x40, 0, 0, 128, 0, 0, 0)
    assert tenant.alloc(0, 0, 0, ROOT, memory(MIB), flip=flipped).through
    assert tenant.control(client, client, ATTACHED, bytes(128)).result == -errno.EPERM
    assert here.engine.state(tenant.id).unaccounted_bytes == MIB


def test_a_call_that_fails_is_made_again(here: World) -> None:
    tenant, client = of_one_group(here)
    registers(tenant, client)
    here.lands(tenant, client, CHANNEL)
    here.uvm_fails(-errno.EAGAIN)
    freed(tenant, client, GROUP_HANDLE)
    calls(tenant, client)
    assert (here.retained, here.used_mib(tenant)) == (1, CONTEXT_MIB)
    here.uvm_fails(0)
    calls(tenant, client)
    assert (here.retained, here.used_mib(tenant)) == (0, 0)


def test_a_name_that_another_channel_has_is_not_unregistered(here: World) -> None:
    tenant, client = freed_while_another_registers(here)
    grouped(tenant, client)
    channelled(tenant, client)
    here.lands(tenant, client, CHANNEL)
    tenant.tell("join")
    calls(tenant, client)
    assert (here.retained, here.used_mib(tenant)) == (1, 2 * CONTEXT_MIB)
    freed(tenant, client, GROUP_HANDLE)
    assert (here.retained, here.used_mib(tenant)) == (0, 0)


def test_it_outlives_the_file_of_its_client(here: World) -> None:
    tenant, client = of_one_group(here)
    registers(tenant, client)
    here.lands(tenant, client, CHANNEL)
    tenant.tell("close", tenant.ctl)
    until(lambda: here.engine.state(tenant.id).objects == 0, "its client is gone")
    assert (here.retained, here.used_mib(tenant)) == (1, CONTEXT_MIB)
    tenant.uvm_call(UVM_UNREGISTER_CHANNEL, unregister_channel(1, 2))
    assert (here.retained, here.used_mib(tenant)) == (0, 0)


def test_it_ends_with_the_file_on_which_it_is_registered(here: World) -> None:
    tenant, client = of_one_group(here)
    registers(tenant, client)
    here.lands(tenant, client, CHANNEL)
    calls(tenant, client)
    tenant.tell("close", tenant.ctl)
    until(lambda: here.engine.state(tenant.id).objects == 0, "its client is gone")
    assert here.used_mib(tenant) == CONTEXT_MIB
    here.closes_uvm(tenant)
    until(lambda: here.used_mib(tenant) == 0, "so is what was registered")


@pytest.mark.parametrize("who", ["", "aside"])
def test_it_ends_with_its_process(here: World, who: str) -> None:
    tenant, client = of_one_group(here)
    registers(tenant, client, who=who)
    here.lands(tenant, client, CHANNEL)
    tenant.kill()
    until(lambda: here.used_mib(tenant) == 0, "its charges have ended")
    until(lambda: here.engine.state(tenant.id).files == 0, "its files are gone")


def test_no_more_threads_register_than_are_known(here: World) -> None:
    tenant, client = of_one_group(here)
    for _ in range(16):
        registers(tenant, client, who="aside")
    params = register_channel(client, CHANNEL)
    refused = tenant.uvm_call(UVM_REGISTER_CHANNEL, params)
    assert (refused.result, refused.through) == (0, False)
    assert refused.u32(REGISTER_STATUS) == NO_MEMORY
    # One that has called again has room for itself.
    registers(tenant, client, who="again")
    tenant.tell("join")
    registers(tenant, client)


def test_channels_that_pile_up_are_refused(here: World) -> None:
    tenant, client = of_one_group(here)
    registers(tenant, client, who="aside")
    for number in range(767):
        channelled(tenant, client, 0x2000 + number)
        freed(tenant, client, 0x2000 + number)
    for parent, class_id, params in ((GROUP_HANDLE, HOPPER, channel(0)), (0xD0, GROUP, group())):
        refused = tenant.alloc(client, parent, 0x1FFF, class_id, params)
        assert (refused.result, refused.u32(STATUS)) == (0, NO_MEMORY)
    tenant.tell("join")
    channelled(tenant, client, 0x1FFF)
    freed(tenant, client, GROUP_HANDLE)
    assert here.used_mib(tenant) == 0


def test_what_is_charged_nothing_is_unregistered_too(here: World) -> None:
    """Its memory is not known, and its numbers are few."""
    here.context(0)
    tenant, client = of_one_group(here)
    registers(tenant, client)
    here.lands(tenant, client, CHANNEL)
    freed(tenant, client, GROUP_HANDLE)
    assert (here.retained, here.used_mib(tenant)) == (0, 0)
