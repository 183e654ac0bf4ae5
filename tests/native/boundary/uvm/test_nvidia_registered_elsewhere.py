"""An address space is registered with nvidia-uvm on the file that mgpud looks at, and so are its channels."""

import ctypes
import errno
import os
import signal
from concurrent.futures import Future

import pytest

from tests.native.nvidia_mediated import Answer, Tenant, World
from tests.native.retained_steps import (
    CHANNEL,
    GROUP_HANDLE,
    SPACE,
    SPACE_STATUS,
    calls,
    free,
    make_space,
    of_one_group,
    registers,
    registers_space,
)
from tests.native.rm_params import (
    CONTEXT_MIB,
    MEMORY,
    SHARE,
    SPACE_MIB,
    UVM,
    UVM_REGISTER_CHANNEL,
    UVM_REGISTER_GPU_VASPACE,
    UVM_UNREGISTER_CHANNEL,
    memory,
)
from tests.native.uvm_asked import asked, beside, has_handled
from tests.native.uvm_params import register_space, unregister_channel, uvm_register_channel
from tests.support import rm_numbers as nv
from tests.support.waiting import until

OK, ILLEGAL_ACTION = 0, nv.NV_ERR_ILLEGAL_ACTION
INSUFFICIENT_PERMISSIONS = nv.NV_ERR_INSUFFICIENT_PERMISSIONS
INVALID_CLIENT = nv.NV_ERR_INVALID_CLIENT
INVALID_DEVICE, INVALID_OBJECT_HANDLE = nv.NV_ERR_INVALID_DEVICE, nv.NV_ERR_INVALID_OBJECT_HANDLE
NOT_SUPPORTED = nv.NV_ERR_NOT_SUPPORTED
NO_GPU = bytes(16)
WAIT_S = 60


def started(here: World, tenant: Tenant | None = None) -> tuple[Tenant, int]:
    """With an initialised file, an address space, and a group that has a channel."""
    tenant = tenant or here.tenant()
    assert tenant.uvm_initialize().through
    tenant, client = of_one_group(here, tenant)
    make_space(tenant, client)
    return tenant, client


def known(other: Tenant, tenant: Tenant) -> int:
    """A descriptor of the other's file, which it has called on."""
    assert other.uvm_initialize().through
    assert other.uvm_call(UVM_UNREGISTER_CHANNEL, unregister_channel(1, 2)).through
    return int(tenant.tell("take", other.pid, other.uvm))


@pytest.mark.parametrize("whose", ["own", "others"])
def test_file_first_seen_initialised_gets_no_address_space(here: World, whose: str) -> None:
    """INITIALIZE was called on one and made on another, by a thread that put it in its place."""
    tenant, client = started(here)
    maker = tenant if whose == "own" else here.tenant()
    unlocated = maker.open(UVM)
    maker.goes_astray(unlocated, fd=maker.open(UVM))
    fd = unlocated if whose == "own" else int(tenant.tell("take", maker.pid, unlocated))
    for number, params in (
        (UVM_REGISTER_GPU_VASPACE, register_space(client, SPACE)),
        (UVM_REGISTER_CHANNEL, uvm_register_channel(client, CHANNEL)),
    ):
        answer = tenant.uvm_call(number, params, fd=fd)
        assert (answer.result, answer.through) == (-errno.EPERM, False)
    assert (registers_space(tenant, client), here.retained) == (OK, 0)


def test_space_is_not_registered_on_another_tenants_file(here: World) -> None:
    other = here.tenant()
    tenant, client = started(here)
    theirs = known(other, tenant)
    answer = tenant.uvm_call(UVM_REGISTER_GPU_VASPACE, register_space(client, SPACE), fd=theirs)
    assert (answer.result, answer.through) == (-1, False)


def test_drivers_answer_is_the_callers(here: World) -> None:
    tenant, client = started(here)
    assert registers_space(tenant, client, gpu=NO_GPU) == INVALID_DEVICE
    assert registers_space(tenant, client, fd=tenant.open(UVM)) == ILLEGAL_ACTION
    said = register_space(client, SPACE)
    answer = tenant.uvm_call(UVM_REGISTER_GPU_VASPACE, said)
    assert (answer.result, answer.through, here.shared) == (0, False, 0)
    assert answer.outer == said[:SPACE_STATUS] + bytes(4)
    make_space(tenant, client, 0x910)
    assert registers_space(tenant, client, 0x910) == INVALID_DEVICE
    again = tenant.open(UVM)
    assert tenant.uvm_initialize(again).through
    assert registers_space(tenant, client, fd=again) == NOT_SUPPORTED
    assert here.shared == 0


def test_call_that_failed_is_made_again(here: World) -> None:
    """With what was written into it: it is none that a signal has torn away."""
    tenant, client = started(here)
    fd = tenant.open(UVM)
    failed = tenant.uvm_call(UVM_REGISTER_GPU_VASPACE, register_space(client, SPACE), fd=fd)
    assert failed.u32(SPACE_STATUS) == ILLEGAL_ACTION
    assert tenant.uvm_initialize(fd, who="aside").through
    assert tenant.uvm_call(UVM_REGISTER_GPU_VASPACE, failed.outer, fd=fd).u32(SPACE_STATUS) == OK


def test_address_space_that_cannot_be_shared_is_not_registered(here: World) -> None:
    tenant, client = started(here)
    here.refuses(escape=SHARE)
    assert registers_space(tenant, client) == NOT_SUPPORTED
    here.refuses()
    assert registers_space(tenant, client) == OK


def test_space_registration_is_refused_to_other_processes(here: World) -> None:
    tenant, client = started(here)
    mate = here.mate(tenant)
    assert mate.uvm_initialize().through
    assert registers_space(mate, client) == INSUFFICIENT_PERMISSIONS
    other, _theirs = started(here)
    assert registers_space(other, client) == INVALID_CLIENT


def test_registration_refuses_objects_that_are_no_address_space(here: World) -> None:
    tenant, client = started(here)
    assert tenant.alloc(client, 0xD0, 0x100, MEMORY, memory(4096)).u32(0x28) == OK
    for handle in (0x100, GROUP_HANDLE, client, 0x7777, 0):
        assert registers_space(tenant, client, handle) == INVALID_OBJECT_HANDLE
    assert (registers_space(tenant, client), here.shared) == (OK, 0)


def test_interrupted_space_registration_happens_once(here: World) -> None:
    tenant, client = started(here)
    calls(tenant, client)
    with asked(here) as (wait, answer), beside(tenant) as other:
        call = other.submit(registers_space, tenant, client)
        wait()
        os.kill(tenant.pid, signal.SIGUSR1)
        until(lambda: has_handled(tenant.pid, signal.SIGUSR1), "it has been torn away")
        answer()
        assert call.result(WAIT_S) == OK
    registers(tenant, client)


@pytest.mark.parametrize("is_registered", [False, True])
def test_unanswered_space_registration_is_answered_after_restart(here: World, is_registered: bool) -> None:
    """Whether the driver had it by then or not."""
    tenant, client = started(here)
    calls(tenant, client)
    said = register_space(client, SPACE)
    if is_registered:
        assert registers_space(tenant, client) == OK
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
            died = here.lib.on_card_died_lending
            what = (UVM_REGISTER_GPU_VASPACE, ctypes.c_uint32(client), SPACE)
            assert died(journal, name, tenant.listener, *files, *what, said, len(said)) == 0

        here.restart(dies)
        answer = waiting[0].result(WAIT_S)
    assert (answer.result, answer.u32(SPACE_STATUS), answer.through) == (0, OK, False)
    assert here.shared == 0
    registers(tenant, client)


def test_registration_is_released_after_a_restart(here: World) -> None:
    tenant, client = started(here)
    assert registers_space(tenant, client) == OK
    registers(tenant, client)
    here.restart()
    assert here.used_mib(tenant) == CONTEXT_MIB + SPACE_MIB
    free(tenant, client, GROUP_HANDLE)
    assert (here.retained, here.used_mib(tenant)) == (0, SPACE_MIB)
