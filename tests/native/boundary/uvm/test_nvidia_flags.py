"""A file of nvidia-uvm that was not initialised as it has to be gets no address space, and its container
ends.
"""

import ctypes
import errno

import pytest

from tests.native.nvidia_mediated import Tenant, World
from tests.native.retained_steps import SPACE, SPACE_STATUS, make_space, of_one_group, registers_space
from tests.native.rm_params import FREE, UVM, UVM_REGISTER_GPU_VASPACE
from tests.native.uvm_params import register_space
from tests.support.rm_numbers import NV_ERR_ILLEGAL_ACTION
from tests.support.waiting import until

DISABLE_HMM, MULTI_PROCESS = 1, 2
OK, ILLEGAL_ACTION = 0, NV_ERR_ILLEGAL_ACTION


@pytest.fixture
def here(here: World) -> World:
    """Nobody looks of himself."""
    here.managed_poller(3600)
    return here


def started(here: World) -> tuple[Tenant, int]:
    """A tenant with a client that has an address space."""
    tenant, client = of_one_group(here)
    make_space(tenant, client)
    return tenant, client


def settles(tenant: Tenant) -> int:
    """What the next call of the container comes to."""
    return tenant.ioctl(tenant.ctl, FREE, bytes(16)).result


def answers(here: World, error: int) -> None:
    """How a file is initialised is answered with this errno; 0: as it is."""
    ctypes.c_int.in_dll(here.lib, "on_card_pageable_error").value = error


@pytest.mark.parametrize("flags", [0, MULTI_PROCESS, MULTI_PROCESS | DISABLE_HMM])
def test_flags_that_another_thread_changes_are_found(here: World, flags: int) -> None:
    tenant, client = started(here)
    assert tenant.uvm_initialize(lands=flags).through
    assert settles(tenant) == 0, "nothing of it can be on a card yet"
    assert tenant.uvm_call(UVM_REGISTER_GPU_VASPACE, register_space(client, SPACE)).result == -errno.EPERM
    assert here.engine.state(tenant.id).unaccounted_bytes > 0
    assert settles(tenant) == -errno.EPERM


def test_address_space_waits_for_the_flags(here: World) -> None:
    tenant, client = started(here)
    assert registers_space(tenant, client) == ILLEGAL_ACTION
    assert tenant.uvm_initialize().through
    answers(here, -errno.EAGAIN)
    params = register_space(client, SPACE)
    assert tenant.uvm_call(UVM_REGISTER_GPU_VASPACE, params).result == -errno.EAGAIN
    answers(here, 0)
    early = tenant.uvm_call(UVM_REGISTER_GPU_VASPACE, params)
    assert (early.result, early.through, early.u32(SPACE_STATUS)) == (0, False, OK)


def test_flags_set_by_a_call_on_another_file_are_found(here: World) -> None:
    tenant, client = started(here)
    assert registers_space(tenant, client) == ILLEGAL_ACTION
    tenant.goes_astray(tenant.uvm, fd=tenant.open(UVM), lands=0)
    assert tenant.uvm_call(UVM_REGISTER_GPU_VASPACE, register_space(client, SPACE)).result == -errno.EPERM
    assert here.engine.state(tenant.id).unaccounted_bytes > 0


def test_next_engine_reads_flags(here: World) -> None:
    tenant, client = started(here)
    assert tenant.uvm_initialize(lands=0).through
    here.restart()
    assert tenant.uvm_call(UVM_REGISTER_GPU_VASPACE, register_space(client, SPACE)).result == -errno.EPERM


def test_second_initialize_changes_nothing(here: World) -> None:
    """The driver compares the flags, and does nothing else."""
    tenant, client = started(here)
    for flags in (0, DISABLE_HMM, 0):
        assert tenant.uvm_initialize(flags=flags).through
    assert registers_space(tenant, client) == OK


def test_process_killed_in_its_call_delays_no_other(here: World) -> None:
    tenant, _client = started(here)
    mate = here.mate(tenant)
    assert mate.uvm_initialize().through
    here.looks(0)
    mate.kill()
    assert settles(tenant) == 0
    until(lambda: here.engine.state(tenant.id).files == 2, "its files are gone")
    assert here.lost() == (0, 0)
