"""How files of nvidia-uvm were initialised that cannot be asked, now or any more: nothing is gained by hiding one."""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
from nvidia_mediated import Answer, Tenant, World, world
from registered_steps import CHANNEL, SPACE, SPACE_STATUS, calls, of_one_group, spaced
from rm_params import FREE, UVM, UVM_REGISTER_CHANNEL, UVM_REGISTER_GPU_VASPACE
from uvm_params import register_channel, register_space

from tests.support.waiting import until

DISABLE_HMM = 1
UVM_REGISTER_GPU = 37
ILLEGAL_ACTION = 0x16


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    """Nobody looks of himself."""
    with world(tmp_path) as made:
        made.managed_looks(3600)
        yield made


def started(here: World) -> tuple[Tenant, int]:
    """A tenant with a file as it has to be, and a client with a channel."""
    tenant = here.tenant()
    assert tenant.initialize().through
    return of_one_group(here, tenant)


def settles(tenant: Tenant) -> int:
    """What the next call of the container comes to."""
    return tenant.ioctl(tenant.ctl, FREE, bytes(16)).result


def registers(tenant: Tenant, client: int) -> Answer:
    """On the file that is as it has to be, as far as anybody sees."""
    return tenant.uvm_call(UVM_REGISTER_CHANNEL, register_channel(client, CHANNEL))


def answers(here: World, error: int) -> None:
    """How a file is initialised is answered with this errno; 0: as it is."""
    ctypes.c_int.in_dll(here.lib, "on_card_pageable_error").value = error


def hides(here: World, tenant: Tenant, fd: int) -> None:
    """The tenant has it in a message, until it has been let go."""
    here.looks(0)
    tenant.tell("send", fd)
    until(lambda: here.lost() == (0, 1), "it has been let go, and is not closed")


def test_one_that_is_hidden_before_anybody_asks_is_found(here: World) -> None:
    tenant, client = started(here)
    other = tenant.open(UVM)
    assert tenant.initialize(other, lands=0).through
    hides(here, tenant, other)
    assert registers(tenant, client).result == -errno.EPERM
    assert here.engine.state(tenant.id).unaccounted_bytes > 0


def test_the_next_engine_finds_it(here: World) -> None:
    tenant, client = started(here)
    other = tenant.open(UVM)
    assert tenant.initialize(other, lands=0).through
    hides(here, tenant, other)
    here.restart()
    here.managed_looks(3600)
    assert here.lost() == (0, 1)
    assert registers(tenant, client).result == -errno.EPERM


def test_one_that_is_as_it_has_to_be_may_be_anywhere(here: World) -> None:
    tenant, client = started(here)
    other = tenant.open(UVM)
    assert tenant.initialize(other).through
    hides(here, tenant, other)
    assert registers(tenant, client).through
    here.restart()
    assert here.lost() == (0, 1)
    assert registers(tenant, client).through


def test_one_that_was_never_initialised_may_be_too(here: World) -> None:
    tenant, client = started(here)
    other = tenant.open(UVM)
    assert settles(tenant) == 0
    tenant.uvm_call(UVM_REGISTER_CHANNEL, register_channel(client, CHANNEL), fd=other)
    hides(here, tenant, other)
    assert registers(tenant, client).through


def test_one_is_found_without_a_call(here: World) -> None:
    tenant = here.tenant()
    here.managed_looks(0)
    assert tenant.initialize(lands=0).through
    until(lambda: here.engine.state(tenant.id).unaccounted_bytes > 0, "it is asked")


def test_one_that_is_hidden_in_its_call_holds_up_nobody(here: World) -> None:
    """With flags that may still change. It has no address space, and gets none."""
    tenant, client = started(here)
    other = tenant.open(UVM)
    # Nobody can have it made later: it is made on one that nobody knows.
    tenant.goes_astray(tenant.open(UVM), fd=other, who="aside", lands=DISABLE_HMM)
    assert registers(tenant, client).through
    hides(here, tenant, other)
    assert registers(tenant, client).through
    tenant.tell("join")
    assert registers(tenant, client).through
    here.restart()
    assert here.lost() == (0, 1)
    assert registers(tenant, client).through
    assert here.engine.state(tenant.id).unaccounted_bytes == 0


def test_no_address_space_for_one_that_is_not_as_it_has_to_be(here: World) -> None:
    tenant, client = started(here)
    spaced(tenant, client)
    other = tenant.open(UVM)
    params = register_space(client, SPACE)
    early = tenant.uvm_call(UVM_REGISTER_GPU_VASPACE, params, fd=other)
    assert (early.result, early.through, early.u32(SPACE_STATUS)) == (0, False, ILLEGAL_ACTION)
    answers(here, -errno.EAGAIN)
    assert tenant.uvm_call(UVM_REGISTER_GPU_VASPACE, params, fd=other).result == -errno.EAGAIN
    answers(here, 0)
    # Nobody else asks while the file is initialised by a call on another, in the middle of which this one is made.
    tenant.goes_astray(other, fd=tenant.open(UVM), who="aside", lands=0)
    assert tenant.uvm_call(UVM_REGISTER_GPU_VASPACE, params, fd=other).result == -errno.EPERM
    assert here.engine.state(tenant.id).unaccounted_bytes > 0


def test_others_of_the_container_are_not_held_up_by_one_that_ends_at_its_call(here: World) -> None:
    tenant, client = started(here)
    mate = here.mate(tenant)
    assert mate.initialize().through
    here.looks(0)
    mate.kill()
    assert registers(tenant, client).through
    until(lambda: here.engine.state(tenant.id).files == 3, "its files are gone")
    assert registers(tenant, client).through
    assert here.lost() == (0, 0)


def test_one_that_cannot_be_asked_now_is_asked_later(here: World) -> None:
    tenant, client = started(here)
    calls(tenant, client)
    answers(here, -errno.EAGAIN)
    assert tenant.initialize(tenant.open(UVM), lands=0).through
    assert [settles(tenant) for _ in range(2)] == [0, 0]
    answers(here, 0)
    assert settles(tenant) == -errno.EPERM


def test_one_that_cannot_be_asked_at_its_first_call_is_asked_later(here: World) -> None:
    tenant, _client = started(here)
    first, unseen = tenant.open(UVM), tenant.open(UVM)
    tenant.goes_astray(unseen, fd=first, lands=0)
    assert tenant.initialize(first).through
    assert settles(tenant) == 0
    answers(here, -errno.EAGAIN)
    assert tenant.uvm_call(UVM_REGISTER_GPU, bytes(64), fd=unseen).through
    answers(here, 0)
    assert settles(tenant) == -errno.EPERM


def test_the_next_engine_asks_what_it_finds(here: World) -> None:
    """Another file can have been put where one was that had been asked."""
    tenant, client = started(here)
    calls(tenant, client)
    other = tenant.open(UVM)
    tenant.goes_astray(other, fd=tenant.open(UVM), lands=0)

    def exchange() -> None:
        tenant.tell("send", tenant.uvm)
        assert int(tenant.tell("dup", other)) == tenant.uvm

    here.restart(exchange)
    here.managed_looks(3600)
    assert here.lost() == (0, 0)
    assert settles(tenant) == -errno.EPERM
