"""A file of nvidia-uvm that mgpud has never seen: INITIALIZE was called on one, and made on another."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
from nvidia_mediated import Tenant, World, world
from registered_steps import (
    CHANNEL,
    CONTEXT_MIB,
    GROUP_HANDLE,
    calls,
    channelled,
    freed,
    grouped,
    of_one_group,
    registers,
)
from rm_params import UVM, UVM_INITIALIZE, UVM_UNREGISTER_CHANNEL
from uvm_asked import asked, beside, has_handled
from uvm_params import unregister_channel

from tests.support.waiting import until

OK, BUSY_RETRY, INVALID_ARGUMENT, NO_MEMORY = 0, 0x03, 0x1F, 0x51
INITIALIZE_STATUS = 8
AT_ONCE = 64  # INITIALIZING_MAX
FLAGS = (7).to_bytes(8, "little") + bytes(8)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


def started(here: World) -> tuple[Tenant, int]:
    """As a program starts: with a file of nvidia-uvm, and a group with a channel."""
    tenant = here.tenant()
    assert tenant.initialize().through
    return of_one_group(here, tenant)


def retained_unseen(here: World, *, who: str = "") -> tuple[Tenant, int, int]:
    """A tenant, its client, and its file that nobody has looked at and that retains its channel."""
    tenant = here.tenant()
    unseen = tenant.open(UVM)
    tenant.goes_astray(unseen, who=who)
    _, client = of_one_group(here, tenant)
    registers(tenant, client)
    here.lands(tenant, client, CHANNEL, unseen)
    return tenant, client, unseen


def used_again(here: World, tenant: Tenant, client: int) -> float:
    """What is charged when one more group has come and gone, in MiB."""
    grouped(tenant, client)
    channelled(tenant, client)
    registers(tenant, client)
    here.lands(tenant, client, CHANNEL)
    freed(tenant, client, GROUP_HANDLE)
    calls(tenant, client)
    return here.used_mib(tenant)


def test_what_ends_is_charged_no_more(here: World) -> None:
    tenant, client = started(here)
    registers(tenant, client)
    here.lands(tenant, client, CHANNEL)
    freed(tenant, client, GROUP_HANDLE)
    assert (here.retained, here.used_mib(tenant)) == (0, 0)


def test_what_a_file_that_nobody_knows_retains_stays_charged(here: World) -> None:
    tenant, client, _unseen = retained_unseen(here)
    freed(tenant, client, GROUP_HANDLE)
    assert (here.retained, here.used_mib(tenant)) == (1, CONTEXT_MIB)
    assert [use.used_bytes for use in here.engine.processes(tenant.id)] == [CONTEXT_MIB * 2**20]
    assert used_again(here, tenant, client) == 2 * CONTEXT_MIB
    assert here.retained == 1, "what is known is asked all the same"


def test_others_are_charged_as_ever(here: World) -> None:
    tenant, client, _unseen = retained_unseen(here)
    other, theirs = started(here)
    freed(tenant, client, GROUP_HANDLE)
    freed(other, theirs, GROUP_HANDLE)
    assert here.used_mib(other) == 0
    assert used_again(here, other, theirs) == 0


def test_it_ends_when_the_kernel_says_that_all_is_known(here: World) -> None:
    tenant, client, unseen = retained_unseen(here)
    here.open_files(2)
    freed(tenant, client, GROUP_HANDLE)
    assert (here.retained, here.used_mib(tenant)) == (1, CONTEXT_MIB)
    here.closes_uvm(tenant, unseen)
    here.open_files(1)
    calls(tenant, client)
    assert here.used_mib(tenant) == 0
    assert used_again(here, tenant, client) == 0


def test_all_is_not_known_while_one_may_have_two_names(here: World) -> None:
    other = here.tenant()
    assert other.initialize().through
    tenant, client, unseen = retained_unseen(here)
    here.restart(lambda: other.tell("send", other.uvm))
    assert here.lost() == (0, 1)
    other.uvm = int(other.tell("receive"))
    assert other.uvm_call(UVM_UNREGISTER_CHANNEL, unregister_channel(1, 2)).through
    freed(tenant, client, GROUP_HANDLE)
    here.closes_uvm(tenant, unseen)
    here.open_files(2)
    calls(tenant, client)
    assert here.used_mib(tenant) == CONTEXT_MIB
    other.kill()
    until(lambda: here.engine.state(other.id).files == 1, "it is closed, but for its first name")
    here.open_files(1)
    until(lambda: here.lost() == (0, 0), "and that one")
    calls(tenant, client)
    assert here.used_mib(tenant) == 0


def test_one_that_comes_to_be_known_is_asked(here: World) -> None:
    tenant, client, unseen = retained_unseen(here)
    here.open_files(2)
    freed(tenant, client, GROUP_HANDLE)
    assert (here.retained, here.used_mib(tenant)) == (1, CONTEXT_MIB)
    registers(tenant, client, fd=unseen)
    assert (here.retained, here.used_mib(tenant)) == (0, 0)


def test_a_call_that_is_under_way_holds_charges_up(here: World) -> None:
    """Where it has been made is not known yet, and nothing it could be made on is."""
    tenant, client = started(here)
    other = tenant.open(UVM)
    tenant.goes_astray(tenant.open(UVM), fd=other, who="aside")
    freed(tenant, client, GROUP_HANDLE)
    calls(tenant, client)
    assert here.used_mib(tenant) == CONTEXT_MIB
    # The kernel's word is about a moment, and the call may come after it.
    here.open_files(2)
    calls(tenant, client)
    assert here.used_mib(tenant) == CONTEXT_MIB
    tenant.tell("join")
    calls(tenant, client)
    assert here.used_mib(tenant) == 0


def test_one_that_was_made_where_it_was_called_holds_nothing_up(here: World) -> None:
    """Its thread does not call again."""
    tenant, client = started(here)
    assert tenant.initialize(tenant.open(UVM), who="aside").through
    freed(tenant, client, GROUP_HANDLE)
    assert here.used_mib(tenant) == 0


def test_one_file_for_two_calls_is_not_enough(here: World) -> None:
    tenant, client = started(here)
    one, two = tenant.open(UVM), tenant.open(UVM)
    assert tenant.initialize(one, who="aside").through
    tenant.goes_astray(tenant.open(UVM), fd=two, who="aside")
    tenant.tell("join")
    freed(tenant, client, GROUP_HANDLE)
    calls(tenant, client)
    assert here.used_mib(tenant) == CONTEXT_MIB


def test_a_file_is_initialized_by_its_caller_once(here: World) -> None:
    """Or the next call would be free to be made anywhere. The driver answers it as ever."""
    tenant, client = started(here)
    tenant.tell("astray", tenant.open(UVM))
    for flags, status in ((bytes(16), OK), (FLAGS, INVALID_ARGUMENT)):
        again = tenant.uvm_call(UVM_INITIALIZE, flags)
        assert (again.result, again.u32(INITIALIZE_STATUS), again.through) == (0, status, False)
    freed(tenant, client, GROUP_HANDLE)
    assert here.used_mib(tenant) == 0


def test_one_at_a_time_of_a_file(here: World) -> None:
    tenant = here.tenant()
    tenant.goes_astray(tenant.open(UVM), who="aside")
    busy = tenant.uvm_call(UVM_INITIALIZE, bytes(16))
    assert (busy.result, busy.u32(INITIALIZE_STATUS), busy.through) == (0, BUSY_RETRY, False)


def test_no_more_are_under_way_than_are_known(here: World) -> None:
    tenant = here.tenant()
    unseen = tenant.open(UVM)
    for _ in range(AT_ONCE):
        tenant.goes_astray(unseen, fd=tenant.open(UVM), who="aside")
    refused = tenant.uvm_call(UVM_INITIALIZE, bytes(16))
    assert (refused.result, refused.u32(INITIALIZE_STATUS), refused.through) == (0, NO_MEMORY, False)
    tenant.tell("join")
    assert tenant.initialize().through


@pytest.mark.parametrize("who", ["", "aside"])
def test_the_next_engine_knows_of_it(here: World, who: str) -> None:
    tenant, client, _unseen = retained_unseen(here, who=who)
    here.restart()
    freed(tenant, client, GROUP_HANDLE)
    here.restart()
    calls(tenant, client)
    assert (here.retained, here.used_mib(tenant)) == (1, CONTEXT_MIB)
    assert used_again(here, tenant, client) == 2 * CONTEXT_MIB


def test_the_next_engine_keeps_a_file_that_it_does_not_find(here: World) -> None:
    tenant, client = started(here)
    registers(tenant, client)
    here.lands(tenant, client, CHANNEL)
    here.looks(1e6)
    tenant.tell("send", tenant.uvm)
    here.restart()
    assert here.lost() == (0, 1)
    freed(tenant, client, GROUP_HANDLE)
    calls(tenant, client)
    assert here.used_mib(tenant) == CONTEXT_MIB
    here.open_files(0)
    until(lambda: here.used_mib(tenant) == 0, "it is closed")


def test_the_next_engine_takes_no_new_file_for_an_initialized_one(here: World) -> None:
    tenant, client = started(here)
    registers(tenant, client)
    here.looks(1e6)

    def exchange() -> None:
        tenant.tell("send", tenant.uvm)
        assert tenant.open(UVM) == tenant.uvm

    here.restart(exchange)
    assert here.lost() == (0, 1)


def dies_at(here: World, tenant: Tenant, call: Callable[[], object]) -> None:
    """The engine ends at that INITIALIZE of the tenant's, before it is let through; the next one serves."""
    find, dies = here.lib.on_card_uvm_file, here.lib.on_card_died_initializing
    find.restype = ctypes.c_uint64
    name = ctypes.c_uint64(tenant.id)
    file = ctypes.c_uint64(find(here.engine._handle, name))

    def died() -> None:
        call()
        assert dies(os.fsencode(here.journal), name, tenant.listener, file) == 0

    here.restart(died)


def test_one_that_a_signal_tears_away_is_made_again(here: World) -> None:
    tenant, client = of_one_group(here)
    with asked(here) as (wait, answer), beside(tenant) as other:
        call = other.submit(tenant.initialize)
        wait()
        os.kill(tenant.pid, signal.SIGUSR1)
        until(lambda: has_handled(tenant.pid, signal.SIGUSR1), "it has been torn away")
        answer()
        assert call.result()
    freed(tenant, client, GROUP_HANDLE)
    assert here.used_mib(tenant) == 0


def test_one_that_the_last_engine_did_not_answer_is_answered(here: World) -> None:
    tenant, client = of_one_group(here)
    tenant.uvm_call(UVM_UNREGISTER_CHANNEL, unregister_channel(1, 2))
    with beside(tenant) as other:
        waiting: list[Future[bool]] = []
        dies_at(here, tenant, lambda: waiting.append(other.submit(tenant.initialize)))
        assert waiting[0].result()
    freed(tenant, client, GROUP_HANDLE)
    assert here.used_mib(tenant) == 0


@pytest.mark.parametrize("who", ["", "aside"])
def test_a_program_that_ends_leaves_nothing_behind(here: World, who: str) -> None:
    """Not even when it has called INITIALIZE last."""
    tenant = here.tenant()
    of_one_group(here, tenant)
    assert tenant.initialize(who=who).through
    tenant.kill()
    until(lambda: here.engine.state(tenant.id).files == 0, "its files are gone")
    assert here.used_mib(tenant) == 0


def test_a_file_that_is_closed_before_anybody_looks_has_been_initialized(here: World) -> None:
    tenant, client = of_one_group(here)
    fd = tenant.open(UVM)
    assert tenant.initialize(fd).through
    here.looks(0)
    tenant.tell("close", fd)
    until(lambda: here.engine.state(tenant.id).files == 2, "it is closed")
    freed(tenant, client, GROUP_HANDLE)
    assert here.used_mib(tenant) == 0
