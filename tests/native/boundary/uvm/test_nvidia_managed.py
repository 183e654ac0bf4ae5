"""Managed memory: what nvidia-uvm maps is charged before it is, and looked for where it could be mapped
unseen.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

import pytest

from tests.native.nvidia_mediated import Tenant, World
from tests.native.rm_params import CTL, FREE, MEMORY, MIB, ROOT, UVM_INITIALIZE, memory
from tests.native.watching import removed, watched
from tests.support import rm_numbers as nv
from tests.support.rm_numbers import NV_ERR_NO_MEMORY, NV_ERR_NOT_SUPPORTED, UVM_REGISTER_GPU
from tests.support.waiting import readable, until

NO_MEMORY = NV_ERR_NO_MEMORY
NOT_SUPPORTED = NV_ERR_NOT_SUPPORTED
AT = 1 << 40
PAGE = 4096
DISABLE_HMM, MULTI_PROCESS = 1, 2
STATUS = 0x28
# Linux tells the map of an address space to a process that has it open.
QUERIES = tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 11)


@pytest.fixture
def quiet(here: World) -> World:
    """Nobody looks of himself."""
    here.managed_poller(3600)
    return here


def started(here: World, cap_mib: int = 64) -> tuple[Tenant, int]:
    """A process that has initialised a file of nvidia-uvm."""
    tenant = here.tenant(cap_mib=cap_mib)
    uvm = tenant.open_uvm()
    assert tenant.uvm_initialize(uvm).through
    assert tenant.uvm_call(UVM_REGISTER_GPU, bytes(64), fd=uvm).through
    return tenant, uvm


def settles(tenant: Tenant) -> int:
    """What the next call of the container comes to."""
    return tenant.ioctl(tenant.ctl, FREE, bytes(16)).result


def test_range_is_charged_and_capped(here: World) -> None:
    tenant, uvm = started(here)
    assert tenant.map(uvm, AT, 48 * MIB) == 0
    assert here.used_mib(tenant) == 48
    assert tenant.map(uvm, AT + (1 << 32), 17 * MIB) == -errno.ENOMEM
    client = tenant.client()
    refused = tenant.alloc(client, 0xD0, 0x100, MEMORY, memory(17 * MIB))
    assert (refused.result, refused.u32(STATUS)) == (0, NO_MEMORY)
    assert tenant.map(uvm, AT + (1 << 32), 16 * MIB) == 0
    assert here.used_mib(tenant) == 64
    assert settles(tenant) == 0


def test_unmapped_range_is_released_when_memory_is_needed(quiet: World) -> None:
    tenant, uvm = started(quiet)
    client = tenant.client()
    assert tenant.map(uvm, AT, 64 * MIB) == 0
    tenant.unmap(AT + 16 * MIB, 16 * MIB)
    made = tenant.alloc(client, 0xD0, 0x100, MEMORY, memory(16 * MIB))
    assert (made.result, made.u32(STATUS)) == (0, 0)
    assert quiet.used_mib(tenant) == 64
    tenant.unmap(AT, 16 * MIB)
    assert tenant.map(uvm, AT, 16 * MIB) == 0
    assert tenant.map(uvm, AT - 16 * MIB, PAGE) == -errno.ENOMEM


def test_unmapped_memory_is_released_without_a_call(here: World) -> None:
    here.managed_poller(0)
    tenant, uvm = started(here)
    assert tenant.map(uvm, AT, 32 * MIB) == 0
    tenant.unmap(AT, 32 * MIB)
    assert settles(tenant) == 0  # so that mmap() has ended
    until(lambda: here.used_mib(tenant) == 0, "it is given back")


@contextmanager
def held_look(here: World) -> Iterator[None]:
    """One look at managed memory has begun, and ends with the scope."""
    here.lib.on_card_hold_look(here.engine._handle)
    here.managed_poller(0)
    try:
        until(lambda: bool(here.lib.on_card_look_is_held()), "somebody looks")
        yield
    finally:
        here.managed_poller(3600)
        here.lib.on_card_let_go_look()


def answered(act: Callable[[], object], what: str) -> None:
    thread = Thread(target=act, daemon=True)
    thread.start()
    until(lambda: not thread.is_alive(), what, timeout_s=10)


def test_slow_reconcile_does_not_delay_other_tenants(quiet: World) -> None:
    tenant, uvm = started(quiet)
    other = quiet.tenant()
    assert tenant.map(uvm, AT, 32 * MIB) == 0
    with held_look(quiet):
        answered(lambda: quiet.used_mib(tenant), "a call of the daemon")
        answered(quiet.tenant, "another tenant and its listener")
        other.kill()
        until(lambda: quiet.engine.state(other.id).listeners == 0, "a listener ends", timeout_s=10)


def test_managed_poll_does_not_delay_files_of_others(quiet: World) -> None:
    tenant, uvm = started(quiet)
    other = quiet.tenant()
    assert tenant.map(uvm, AT, 32 * MIB) == 0
    files = [tenant.open(CTL) for _ in range(3)]
    for fd in files:
        assert tenant.alloc(0, 0, 0, ROOT, fd=fd).through
    before = quiet.engine.state(tenant.id).files
    with held_look(quiet):
        for fd in files:
            tenant.tell("close", fd)
        watched(quiet, other)
        # Those that went first have been heard of by then.
        assert quiet.engine.state(tenant.id).files == before
        watched(quiet, other)
    until(lambda: quiet.engine.state(tenant.id).files == before - len(files), "they end too")


def test_tenant_is_not_removed_while_it_is_reconciled(quiet: World) -> None:
    tenant, uvm = started(quiet)
    quiet.tenant()  # somebody is left to look for
    assert tenant.map(uvm, AT, 32 * MIB) == 0
    assert settles(tenant) == 0
    tenant.kill()

    def nothing_else() -> bool:
        state = quiet.engine.state(tenant.id)
        return (state.listeners, state.files) == (0, 0)

    quiet.looks(0)
    until(nothing_else, "its listener and its files end")
    with held_look(quiet):
        with suppress(BlockingIOError):
            os.read(quiet.engine.event_fd, 8)
        tried: list[bool] = []
        answered(lambda: tried.append(removed(quiet, tenant)), "it cannot be removed")
        assert tried == [False]
    assert readable(quiet.engine.event_fd, 10_000), "nobody says that the look is over"
    until(lambda: removed(quiet, tenant), "it can be removed")


@pytest.mark.parametrize("end", ["exec", "kill"])
def test_end_of_a_memory_ends_its_charge(here: World, end: str) -> None:
    here.managed_poller(0)
    tenant, uvm = started(here)
    assert tenant.map(uvm, AT, 32 * MIB) == 0
    assert here.used_mib(tenant) == 32
    other = here.tenant()  # somebody is left to look for
    if end == "exec":
        tenant.tell("exec")
    else:
        tenant.kill()
    until(lambda: here.used_mib(tenant) == 0, "it is given back")
    assert here.used_mib(other) == 0


def test_cycles_and_many_small_maps(quiet: World) -> None:
    tenant, uvm = started(quiet, cap_mib=4)
    for _ in range(50):
        assert tenant.map(uvm, AT, 3 * MIB) == 0
        tenant.unmap(AT, 3 * MIB)
    made = [tenant.map(uvm, AT + i * MIB, MIB // 2) for i in range(12)]
    assert made == [0] * 8 + [-errno.ENOMEM] * 4
    assert quiet.used_mib(tenant) == 4


def test_overlapping_mapping_counts_once_mapped(quiet: World) -> None:
    tenant, uvm = started(quiet)
    assert tenant.map(uvm, AT, 32 * MIB) == 0
    assert tenant.map(uvm, AT, 32 * MIB) == 0
    assert tenant.map(uvm, AT + MIB, 32 * MIB) == 0  # 33 in all, so that there is room again
    assert settles(tenant) == 0


@pytest.mark.parametrize("size", [0, 1, (1 << 43) + PAGE, (1 << 64) - PAGE, (1 << 64) - 1])
def test_sizes_that_make_no_sense(quiet: World, size: int) -> None:
    tenant, uvm = started(quiet)
    result = tenant.map(uvm, AT, size)
    assert (result, quiet.used_mib(tenant) * MIB) == ((0, PAGE) if size == 1 else (result, 0))
    assert result in (0, -errno.EINVAL, -errno.ENOMEM)
    assert (result == 0) == (size == 1)


def test_offset_that_is_not_the_address_is_no_managed_range(quiet: World) -> None:
    tenant, uvm = started(quiet)
    assert int(tenant.tell("ordinary", uvm, 0, f"{PAGE:x}", f"{2 * MIB:x}")) == 0
    assert settles(tenant) == 0
    assert tenant.map(uvm, AT, 64 * MIB) == 0
    assert settles(tenant) == 0


def test_address_that_is_not_the_offset_is_not_charged(quiet: World) -> None:
    tenant, uvm = started(quiet)
    assert tenant.map(uvm, AT, 128 * MIB, how="elsewhere") == 0
    assert quiet.used_mib(tenant) == 0
    assert settles(tenant) == 0


def test_ordinary_files_are_mapped_as_ever(here: World, tmp_path: Path) -> None:
    ordinary = tmp_path / "ordinary"
    with ordinary.open("wb") as file:
        file.truncate(AT + (1 << 32))
    tenant = here.tenant(cap_mib=1)
    fd = int(tenant.tell("file", ordinary))
    for i in range(200):
        assert tenant.map(fd, AT + i * MIB, MIB) == 0
    uvm = tenant.open_uvm()
    assert tenant.uvm_initialize(uvm).through
    for i in range(200):
        assert tenant.map(fd, AT + i * MIB, MIB) == 0
    assert here.used_mib(tenant) == 0
    assert settles(tenant) == 0


def test_process_with_the_same_memory_shares_the_charge(quiet: World) -> None:
    tenant, uvm = started(quiet)
    assert tenant.map(uvm, AT, 16 * MIB) == 0
    assert tenant.map(uvm, AT + (1 << 32), 16 * MIB, how="sibling") == 0
    assert quiet.used_mib(tenant) == 32
    assert settles(tenant) == 0
    assert tenant.map(uvm, AT + (2 << 32), 33 * MIB) == -errno.ENOMEM
    assert quiet.used_mib(tenant) == 32


def test_memory_outlives_the_process_that_mapped_it(quiet: World) -> None:
    """It is another's too, which nothing is known of: what is mapped there stays charged."""
    tenant, uvm = started(quiet)
    client = tenant.client()
    assert tenant.map(uvm, AT, 48 * MIB, how="sibling") == 0
    assert quiet.used_mib(tenant) == 48
    refused = tenant.alloc(client, 0xD0, 0x100, MEMORY, memory(18 * MIB))
    assert (refused.result, refused.u32(STATUS)) == (0, NO_MEMORY)
    tenant.unmap(AT, 32 * MIB)
    made = tenant.alloc(client, 0xD0, 0x100, MEMORY, memory(18 * MIB))
    assert (made.result, made.u32(STATUS)) == (0, 0 if QUERIES else NO_MEMORY)
    assert quiet.used_mib(tenant) == (34 if QUERIES else 48)


@pytest.mark.skipif(not QUERIES, reason="nobody can look at a memory whose process is no more")
def test_ordinary_file_mapped_by_an_exited_process(quiet: World, tmp_path: Path) -> None:
    ordinary = tmp_path / "ordinary"
    ordinary.touch()
    tenant, _ = started(quiet, cap_mib=1)
    assert tenant.map(int(tenant.tell("file", ordinary)), AT, 2 * MIB, flags=0, how="elsewhere") == 0
    assert settles(tenant) == 0


def test_child_has_memory_of_its_own(quiet: World) -> None:
    tenant, uvm = started(quiet)
    assert tenant.map(uvm, AT, 48 * MIB, how="forked") == 0
    assert tenant.map(uvm, AT, 17 * MIB) == -errno.ENOMEM
    assert tenant.map(uvm, AT, 16 * MIB) == 0
    assert quiet.used_mib(tenant) == 64
    assert settles(tenant) == 0


def test_managed_memory_after_exec_is_charged_anew(quiet: World) -> None:
    """What the first one had is still there: a process that shared its memory holds it."""
    tenant, uvm = started(quiet)
    assert tenant.map(uvm, AT, 32 * MIB) == 0
    tenant.tell("shares")
    tenant.tell("exec")
    again = tenant.open_uvm()
    assert tenant.uvm_initialize(again).through
    assert tenant.map(again, AT, 33 * MIB) == -errno.ENOMEM
    assert tenant.map(again, AT, 32 * MIB) == 0
    assert quiet.used_mib(tenant) == 64
    assert tenant.map(again, AT + (1 << 32), PAGE) == -errno.ENOMEM
    assert quiet.used_mib(tenant) == 64


def test_mapping_that_waits_for_the_file_to_be_initialised_is_found(quiet: World) -> None:
    """It was continued before memory of nvidia-uvm was asked for, and has not been seen to end."""
    tenant = quiet.tenant(cap_mib=1)
    uvm = tenant.open_uvm()
    assert tenant.map(uvm, AT, 2 * MIB, how="spun") == 0
    assert tenant.uvm_initialize(uvm).through
    assert settles(tenant) == -errno.EPERM
    assert quiet.engine.state(tenant.id).unaccounted_bytes == 2 * MIB


def test_every_waiting_mapping_is_found(quiet: World) -> None:
    tenant = quiet.tenant(cap_mib=1)
    uvm = tenant.open_uvm()
    for i in range(99):
        assert tenant.map(uvm, AT + i * PAGE, PAGE, how="spun") == 0
    assert tenant.map(uvm, AT + (1 << 32), 2 * MIB, how="spun") == 0
    tenant.unmap(AT, 99 * PAGE)
    assert tenant.uvm_initialize(uvm).through
    assert settles(tenant) == -errno.EPERM
    assert quiet.engine.state(tenant.id).unaccounted_bytes == 2 * MIB


def test_managed_calls_above_the_limit_are_refused(quiet: World) -> None:
    tenant = quiet.tenant()
    uvm = tenant.open_uvm()
    assert tenant.map(uvm, AT, PAGE, how="spun") == 0
    quiet.lib.on_card_fill_calls(quiet.engine._handle, ctypes.c_uint64(tenant.id))
    assert tenant.map(uvm, AT, PAGE) == -errno.EAGAIN


def looked(here: World) -> int:
    """How many maps have been read since this was asked last; the first time they were not counted."""
    return int(here.lib.on_card_looked(here.engine._handle))


def test_finished_calls_are_not_reconciled(quiet: World) -> None:
    """Nor those of processes that initialise nothing: what they map is of no file that is initialised."""
    tenant = quiet.tenant()
    ended, lives = quiet.mate(tenant), quiet.mate(tenant)
    for i in range(99):
        assert ended.map(ended.open_uvm(), AT + i * PAGE, PAGE, how="spun") == 0
    assert lives.map(lives.open_uvm(), AT, PAGE, how="spun") == 0
    ended.kill()
    assert tenant.uvm_initialize(tenant.open_uvm()).through
    assert settles(tenant) == 0
    looked(quiet)
    assert [settles(tenant) for _ in range(2)] == [0, 0]
    assert looked(quiet) == 0
    assert lives.uvm_initialize(lives.uvm).through
    assert settles(tenant) == 0
    assert looked(quiet) > 0, "now it may map what is initialised"


def test_managed_call_in_flight_keeps_its_charge(quiet: World) -> None:
    """A range that is not there may be yet to come, while the thread is in its call."""
    tenant, uvm = started(quiet)
    assert tenant.map(uvm, AT, 48 * MIB, how="spun") == 0
    tenant.unmap(AT, 48 * MIB)
    assert tenant.map(uvm, AT, 17 * MIB) == -errno.ENOMEM
    assert quiet.used_mib(tenant) == 48


def cheat(here: World, tmp_path: Path) -> tuple[Tenant, int]:
    """One that has more mapped than its cap: the look saw another file than the kernel."""
    ordinary = tmp_path / "ordinary"
    ordinary.touch()
    tenant, uvm = started(here, cap_mib=1)
    assert tenant.tell("swapped", int(tenant.tell("file", ordinary)), uvm, f"{AT:x}", f"{2 * MIB:x}") == "1"
    return tenant, uvm


def test_swapped_file_is_found_before_the_next_answer(quiet: World, tmp_path: Path) -> None:
    tenant, _ = cheat(quiet, tmp_path)
    assert settles(tenant) == -errno.EPERM
    assert quiet.engine.state(tenant.id).unaccounted_bytes == 2 * MIB
    assert settles(tenant) == -errno.EPERM


def test_swapped_file_is_found_before_the_next_mapping(quiet: World, tmp_path: Path) -> None:
    tenant, uvm = cheat(quiet, tmp_path)
    assert tenant.map(uvm, AT + (1 << 32), PAGE) == -errno.EPERM
    assert quiet.engine.state(tenant.id).unaccounted_bytes == 2 * MIB


def test_swapped_file_is_found_without_a_call(here: World, tmp_path: Path) -> None:
    here.managed_poller(0)
    tenant, _ = cheat(here, tmp_path)
    until(lambda: here.engine.state(tenant.id).unaccounted_bytes == 2 * MIB, "it is caught")


def test_continued_mmap_is_found_after_a_restart(quiet: World, tmp_path: Path) -> None:
    tenant, _ = cheat(quiet, tmp_path)
    quiet.restart()
    quiet.managed_poller(3600)
    assert settles(tenant) == -errno.EPERM


def test_managed_charges_survive_a_restart(quiet: World) -> None:
    tenant, uvm = started(quiet)
    assert tenant.map(uvm, AT, 48 * MIB) == 0
    quiet.restart()
    assert quiet.used_mib(tenant) == 48
    assert tenant.map(uvm, AT + (1 << 32), 17 * MIB) == -errno.ENOMEM
    quiet.restart(lambda: tenant.unmap(AT, 48 * MIB))
    assert tenant.map(uvm, AT, 64 * MIB) == 0
    quiet.restart(tenant.kill)
    assert quiet.used_mib(tenant) == 0


def test_processes_are_told_what_they_hold(here: World) -> None:
    tenant, uvm = started(here)
    assert tenant.map(uvm, AT, 16 * MIB) == 0
    assert [(p.pid, p.used_bytes) for p in here.engine.processes(tenant.id)] == [(tenant.pid, 16 * MIB)]


def test_managed_memory_hides_no_memory_of_another_kind(quiet: World) -> None:
    """What the driver counts to the processes is compared with the other charges alone."""
    tenant, uvm = started(quiet)
    assert tenant.map(uvm, AT, 32 * MIB) == 0
    client = tenant.client()
    flip = struct.pack("IIIIQQIIII", client, 0xD0, 0x200, MEMORY, 0, 0, 128, 0, 0, 0)
    tenant.alloc(0, 0, 0, 0x41, memory(16 * MIB), flip=flip)
    assert settles(tenant) == -errno.EPERM


def test_pageable_memory_stays_where_it_is(quiet: World) -> None:
    tenant = quiet.tenant()
    uvm = tenant.open_uvm()
    first = tenant.uvm_initialize(uvm)
    assert (first.through, struct.unpack_from("Q", first.outer)) == (True, (DISABLE_HMM,))
    assert settles(tenant) == 0


def test_sharing_between_processes_is_refused(quiet: World) -> None:
    tenant = quiet.tenant()
    answer = tenant.uvm_initialize(tenant.open_uvm(), MULTI_PROCESS)
    assert (answer.result, answer.through, answer.u32(8)) == (0, False, NOT_SUPPORTED)


@pytest.mark.parametrize(
    "command",
    [nv.UVM_MIGRATE, nv.UVM_SET_PREFERRED_LOCATION, nv.UVM_MIGRATE_RANGE_GROUP, nv.UVM_DISCARD],
)
def test_managed_memory_is_charged_whole_and_moves_as_its_program_wants(here: World, command: int) -> None:
    tenant = here.tenant()
    assert tenant.ioctl(tenant.uvm, UVM_INITIALIZE).through
    assert tenant.ioctl(tenant.uvm, command).through
