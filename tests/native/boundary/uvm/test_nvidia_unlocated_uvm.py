"""Memory that only a mapping of nvidia-uvm keeps, on an unlocated file, stays charged."""

import errno

import pytest

from tests.native.nvidia_mediated import Tenant, World
from tests.native.rm_params import (
    CTL,
    MEMORY,
    MIB,
    UVM,
    UVM_FREE,
    UVM_INITIALIZE,
    UVM_MAP_EXTERNAL,
    UVM_UNMAP_EXTERNAL,
    memory,
)
from tests.native.uvm_params import free_range, map_external, unmap_external
from tests.native.watching import removed, watched
from tests.support.rm_numbers import NV_ERR_NO_MEMORY
from tests.support.waiting import until

OK, NO_MEMORY = 0, NV_ERR_NO_MEMORY
FREE_STATUS, UNMAP_STATUS, MAP_STATUS = 16, 32, 9260
BASE, SIZE = 0x7F0000000000, 48 * MIB
HANDLE = 0x100
NEVER_S = 1e6


@pytest.fixture
def here(here: World) -> World:
    here.range(BASE, SIZE)
    return here


def allocate(tenant: Tenant, client: int) -> int:
    """The RM status."""
    return tenant.alloc(client, 0xD0, HANDLE, MEMORY, memory(SIZE)).u32(0x28)


def held(here: World) -> tuple[Tenant, int]:
    """A tenant that may have 64 MiB and has mapped 48 and freed them, and its client."""
    tenant, client = here.tenant_client(cap_mib=64)
    assert tenant.uvm_initialize().through
    assert allocate(tenant, client) == OK
    made = tenant.uvm_call(UVM_MAP_EXTERNAL, map_external(client, HANDLE, BASE, SIZE))
    assert (made.result, made.u32(MAP_STATUS)) == (0, 0)
    assert tenant.free(client, HANDLE).u32(0xC) == OK
    assert here.memory_mib(tenant) == 48
    return tenant, client


def ends_with_its_tenant(here: World, tenant: Tenant) -> None:
    """Of the tenant that is charged 48 MiB, with all its processes, and nothing is left of it."""
    assert not removed(here, tenant), "it has a process"
    assert here.memory_mib(tenant) == 48
    tenant.kill()
    until(lambda: removed(here, tenant), "nothing is left of it")
    assert here.lost() == (0, 0)


def test_file_in_a_message_keeps_its_mappings_charged(here: World) -> None:
    tenant, client = held(here)
    here.looks(0)
    tenant.tell("send", tenant.uvm)
    until(lambda: here.lost() == (0, 1), "it has been let go, and is not closed")
    assert here.memory_mib(tenant) == 48
    assert allocate(tenant, client) == NO_MEMORY
    # What is found again has lost its name, and no call can be made on it.
    fd = int(tenant.tell("receive"))
    unmap = tenant.uvm_call(UVM_UNMAP_EXTERNAL, unmap_external(BASE, SIZE), fd=fd)
    assert (unmap.result, unmap.through) == (-errno.EPERM, False)
    assert here.memory_mib(tenant) == 48
    ends_with_its_tenant(here, tenant)


def test_file_that_is_received_in_time_ends_as_any(here: World) -> None:
    tenant, client = held(here)
    here.looks(NEVER_S)
    tenant.tell("send", tenant.uvm)
    until(lambda: here.lost() == (1, 0), "it has been missed once")
    assert allocate(tenant, client) == NO_MEMORY
    fd = int(tenant.tell("receive"))
    unmap = tenant.uvm_call(UVM_UNMAP_EXTERNAL, unmap_external(BASE, SIZE), fd=fd)
    assert (unmap.result, unmap.u32(UNMAP_STATUS)) == (0, OK)
    assert here.used_mib(tenant) == 0
    assert allocate(tenant, client) == OK
    assert here.lost() == (0, 0)


def test_process_that_ends_gives_all_back_while_its_container_lives(here: World) -> None:
    """Nobody says that the tenant has ended."""
    tenant, _client = held(here)
    for _ in range(3):
        assert tenant.ioctl(tenant.open(UVM), UVM_INITIALIZE).through
    tenant.kill()
    until(lambda: here.engine.state(tenant.id).files == 0, "its files are gone")
    assert here.used_mib(tenant) == 0
    assert here.lost() == (0, 0)


def test_unlocated_files_stay_charged_after_a_restart(here: World) -> None:
    tenant, _client = held(here)
    here.looks(0)
    tenant.tell("send", tenant.uvm)
    until(lambda: here.lost() == (0, 1), "it has been let go, and is not closed")
    for _ in range(2):
        here.restart()
        assert (here.memory_mib(tenant), here.lost()) == (48, (0, 1))
    ends_with_its_tenant(here, tenant)


def test_restart_takes_no_other_file_for_an_unlocated_one(here: World) -> None:
    tenant, _client = held(here)
    here.looks(NEVER_S)
    tenant.tell("send", tenant.uvm)
    assert tenant.open(UVM) == tenant.uvm
    until(lambda: here.lost() == (1, 0), "it has been missed once")
    here.restart()
    here.looks(0)
    assert (here.memory_mib(tenant), here.lost()) == (48, (0, 1))
    here.range(2 * BASE, MIB)
    assert tenant.uvm_call(UVM_FREE, free_range(2 * BASE, MIB)).u32(FREE_STATUS) == OK
    tenant.tell("close", tenant.uvm)
    until(lambda: here.engine.state(tenant.id).files == 3, "the other is closed")
    ends_with_its_tenant(here, tenant)


def test_returned_file_is_located_after_a_restart(here: World) -> None:
    tenant, client = held(here)
    here.looks(NEVER_S)
    copy = int(tenant.tell("dup", tenant.uvm))
    tenant.tell("send", tenant.uvm)
    tenant.tell("send", copy)
    until(lambda: here.lost() == (1, 0), "it has been missed once")
    # Where it was.
    assert int(tenant.tell("receive")) == min(tenant.uvm, copy)
    until(lambda: here.lost() == (0, 0), "it has been seen")
    here.restart()
    assert here.lost() == (0, 0)
    assert tenant.uvm_call(UVM_UNMAP_EXTERNAL, unmap_external(BASE, SIZE)).u32(UNMAP_STATUS) == OK
    assert here.used_mib(tenant) == 0
    assert allocate(tenant, client) == OK


def test_file_closed_during_restart_stays_charged_until_its_tenant_exits(here: World) -> None:
    """Nothing tells it from what is hidden."""
    tenant, _client = held(here)
    other = here.tenant()
    assert tenant.uvm_call(UVM_UNMAP_EXTERNAL, unmap_external(BASE, SIZE), fd=tenant.open(UVM)).result == 0
    here.restart(tenant.kill)
    assert here.memory_mib(tenant) == 48
    assert here.engine.state(tenant.id).objects == 0
    # A file that has nothing mapped, and is not initialised, keeps nothing.
    assert here.lost() == (0, 1)
    until(lambda: removed(here, tenant), "nothing is left of it")
    assert not removed(here, other)


def test_charge_ends_when_the_kernels_count_shows_the_close(here: World) -> None:
    tenant, _client = held(here)
    other = here.tenant()
    assert other.uvm_initialize().through
    here.open_files(2)
    here.restart(tenant.kill)
    assert here.memory_mib(tenant) == 48
    here.open_files(1)
    until(lambda: here.used_mib(tenant) == 0, "it is closed")
    assert here.lost() == (0, 0)


def test_open_file_count_keeps_an_open_unlocated_file(here: World) -> None:
    """Under a descriptor that came up again, and that is not called on."""
    tenant, _client = held(here)
    here.restart(lambda: tenant.tell("send", tenant.uvm))
    assert (here.memory_mib(tenant), here.lost()) == (48, (0, 1))
    tenant.open(CTL)  # where it was, so that it is not found there by the next one
    fd = int(tenant.tell("receive"))
    refused = tenant.uvm_call(UVM_FREE, free_range(2 * BASE, MIB), fd=fd)
    assert (refused.result, refused.through) == (-errno.EPERM, False)
    here.open_files(1)
    watched(here, tenant)
    assert (here.memory_mib(tenant), here.lost()) == (48, (0, 1))
    tenant.tell("close", fd)
    here.open_files(0)
    until(lambda: here.used_mib(tenant) == 0, "what nobody saw is closed")
    assert here.lost() == (0, 0)


def test_new_file_is_not_taken_for_an_unlocated_one(here: World) -> None:
    tenant, _client = held(here)
    here.restart(lambda: tenant.tell("send", tenant.uvm))
    tenant.uvm = tenant.open(UVM)
    assert tenant.uvm_initialize().through
    watched(here, tenant)
    assert (here.memory_mib(tenant), here.lost()) == (48, (0, 1))
    here.open_files(1)
    until(lambda: here.used_mib(tenant) == 0, "what nobody saw is closed")
