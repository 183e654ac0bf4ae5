"""An address space is registered with nvidia-uvm on the file that mgpud looks at, and so are its channels."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
from nvidia_mediated import Answer, Tenant, World, world
from registered_steps import (
    CONTEXT_MIB,
    GROUP_HANDLE,
    SPACE,
    SPACE_STATUS,
    calls,
    freed,
    of_one_group,
    registers,
    registers_space,
    space_lands,
    spaced,
    takes,
)
from rm_params import (
    MEMORY,
    SHARE,
    SPACE_MIB,
    UVM,
    UVM_REGISTER_GPU_VASPACE,
    UVM_UNREGISTER_CHANNEL,
    memory,
)
from uvm_asked import asked, beside, has_handled
from uvm_params import register_space, unregister_channel

from tests.support.waiting import until

OK, ILLEGAL_ACTION, INSUFFICIENT_PERMISSIONS, INVALID_CLIENT = 0, 0x16, 0x1B, 0x23
INVALID_DEVICE, INVALID_OBJECT_HANDLE, NOT_SUPPORTED = 0x26, 0x33, 0x56
NO_GPU = bytes(16)
WAIT_S = 60


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


def started(here: World, tenant: Tenant | None = None) -> tuple[Tenant, int]:
    """With an initialised file, an address space, and a group that has a channel."""
    tenant = tenant or here.tenant()
    assert tenant.initialize().through
    tenant, client = of_one_group(here, tenant)
    spaced(tenant, client)
    return tenant, client


def known(here: World, other: Tenant, tenant: Tenant) -> int:
    assert other.initialize().through
    assert other.uvm_call(UVM_UNREGISTER_CHANNEL, unregister_channel(1, 2)).through
    return int(tenant.tell("take", other.pid, other.uvm))


def astray(here: World, other: Tenant, tenant: Tenant) -> int:
    unseen = other.open(UVM)
    other.goes_astray(unseen)
    return int(tenant.tell("take", other.pid, unseen))


def hidden(here: World, other: Tenant, tenant: Tenant) -> int:
    theirs = known(here, other, tenant)
    here.restart(lambda: other.tell("send", other.uvm))
    assert here.lost() == (0, 1)
    return theirs


@pytest.mark.parametrize("how", [known, astray, hidden])
def test_a_channel_is_not_registered_on_another_tenants_file(
    here: World, how: Callable[[World, Tenant, Tenant], int]
) -> None:
    """By a thread that puts the other's file in the place of the one that its calls are made on."""
    other = here.tenant()
    tenant, client = started(here)
    calls(tenant, client)
    theirs = how(here, other, tenant)
    registers_space(here, tenant, client, on=theirs)
    registers(tenant, client)
    assert [takes(here, tenant, client, fd) for fd in (theirs, tenant.uvm)].count(True) == 1
    freed(tenant, client, GROUP_HANDLE)
    calls(tenant, client)
    assert (here.retained, here.used_mib(tenant)) == (0, SPACE_MIB)


def test_it_is_not_registered_on_a_file_that_nobody_knows(here: World) -> None:
    tenant, client = started(here)
    unseen = tenant.open(UVM)
    tenant.goes_astray(unseen, fd=tenant.open(UVM))
    registers_space(here, tenant, client, on=unseen)
    registers(tenant, client)
    assert not takes(here, tenant, client, unseen)
    assert takes(here, tenant, client, tenant.uvm)


def test_another_tenants_file_is_not_called_on(here: World) -> None:
    other = here.tenant()
    tenant, client = started(here)
    theirs = known(here, other, tenant)
    answer = tenant.uvm_call(UVM_REGISTER_GPU_VASPACE, register_space(client, SPACE), fd=theirs)
    assert (answer.result, answer.through) == (-1, False)


def test_the_drivers_answer_is_the_callers(here: World) -> None:
    tenant, client = started(here)
    assert registers_space(here, tenant, client, gpu=NO_GPU) == INVALID_DEVICE
    assert registers_space(here, tenant, client, fd=tenant.open(UVM)) == ILLEGAL_ACTION
    said = register_space(client, SPACE)
    answer = tenant.uvm_call(UVM_REGISTER_GPU_VASPACE, said)
    assert (answer.result, answer.through, here.shared) == (0, False, 0)
    assert answer.outer == said[:SPACE_STATUS] + bytes(4)
    spaced(tenant, client, 0x910)
    assert registers_space(here, tenant, client, 0x910) == INVALID_DEVICE
    again = tenant.open(UVM)
    assert tenant.initialize(again).through
    assert registers_space(here, tenant, client, fd=again) == NOT_SUPPORTED
    assert here.shared == 0


def test_a_call_that_failed_is_made_again(here: World) -> None:
    """With what was written into it: it is none that a signal has torn away."""
    tenant, client = started(here)
    fd = tenant.open(UVM)
    failed = tenant.uvm_call(UVM_REGISTER_GPU_VASPACE, register_space(client, SPACE), fd=fd)
    assert failed.u32(SPACE_STATUS) == ILLEGAL_ACTION
    assert tenant.initialize(fd, who="aside").through
    assert tenant.uvm_call(UVM_REGISTER_GPU_VASPACE, failed.outer, fd=fd).u32(SPACE_STATUS) == OK


def test_an_address_space_that_cannot_be_shared_is_not_registered(here: World) -> None:
    tenant, client = started(here)
    here.refuses(escape=SHARE)
    assert registers_space(here, tenant, client) == NOT_SUPPORTED
    here.refuses()
    assert registers_space(here, tenant, client) == OK


def test_it_is_the_clients_own_process_that_may(here: World) -> None:
    tenant, client = started(here)
    mate = here.mate(tenant)
    assert mate.initialize().through
    assert registers_space(here, mate, client) == INSUFFICIENT_PERMISSIONS
    other, _theirs = started(here)
    assert registers_space(here, other, client) == INVALID_CLIENT


def test_it_is_an_address_space_that_is_registered(here: World) -> None:
    tenant, client = started(here)
    assert tenant.alloc(client, 0xD0, 0x100, MEMORY, memory(4096)).u32(0x28) == OK
    for handle in (0x100, GROUP_HANDLE, client, 0x7777, 0):
        assert registers_space(here, tenant, client, handle) == INVALID_OBJECT_HANDLE
    assert (registers_space(here, tenant, client), here.shared) == (OK, 0)


def test_one_that_a_signal_tears_away_is_made_once(here: World) -> None:
    tenant, client = started(here)
    calls(tenant, client)
    with asked(here) as (wait, answer), beside(tenant) as other:
        call = other.submit(registers_space, here, tenant, client)
        wait()
        os.kill(tenant.pid, signal.SIGUSR1)
        until(lambda: has_handled(tenant.pid, signal.SIGUSR1), "it has been torn away")
        answer()
        assert call.result(WAIT_S) == OK
    assert takes(here, tenant, client, tenant.uvm)


@pytest.mark.parametrize("registered", [False, True])
def test_one_that_the_last_engine_did_not_answer_is_answered(here: World, registered: bool) -> None:
    """Whether the driver had it by then or not."""
    tenant, client = started(here)
    calls(tenant, client)
    said = register_space(client, SPACE)
    files = []
    for name, of in (("on_card_uvm_file", ()), ("on_card_client_file", (ctypes.c_uint32(client),))):
        find = getattr(here.lib, name)
        find.restype = ctypes.c_uint64
        files.append(ctypes.c_uint64(find(here.engine._handle, ctypes.c_uint64(tenant.id), *of)))
    with beside(tenant) as other:
        waiting: list[Future[Answer]] = []

        def dies() -> None:
            waiting.append(other.submit(tenant.uvm_call, UVM_REGISTER_GPU_VASPACE, said))
            journal, name = os.fsencode(here.journal), ctypes.c_uint64(tenant.id)
            died = here.lib.on_card_died_registering
            assert died(journal, name, tenant.listener, *files, said) == 0
            if registered:
                assert space_lands(here, tenant, client, SPACE, tenant.uvm) == OK

        here.restart(dies)
        answer = waiting[0].result(WAIT_S)
    assert (answer.result, answer.u32(SPACE_STATUS), answer.through) == (0, OK, False)
    assert here.shared == 0
    assert takes(here, tenant, client, tenant.uvm)


def test_the_next_engine_asks_where_it_is_registered(here: World) -> None:
    tenant, client = started(here)
    assert registers_space(here, tenant, client) == OK
    registers(tenant, client)
    assert takes(here, tenant, client, tenant.uvm)
    here.restart()
    assert here.used_mib(tenant) == CONTEXT_MIB + SPACE_MIB
    freed(tenant, client, GROUP_HANDLE)
    assert (here.retained, here.used_mib(tenant)) == (0, SPACE_MIB)
