"""A call that asks for memory, or how much is free, waits until closing files of its container are closed."""

import ctypes
import errno
import os
import signal
import struct
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.native.nvidia_mediated import Tenant, World
from tests.native.page_tables import Mapped, charged_bytes
from tests.native.rm_params import (
    CTL,
    DEVICE,
    MEMORY,
    MIB,
    ROOT,
    SUBDEVICE,
    UVM,
    UVM_FREE,
    UVM_MAP_EXTERNAL,
    memory,
)
from tests.native.uvm_params import GPU_ONE, GPU_TWO, free_range, map_external
from tests.native.watching import waits, watched
from tests.support import rm_numbers as nv
from tests.support.waiting import until

OK, NO_MEMORY = 0, nv.NV_ERR_NO_MEMORY
MAP_STATUS = 9260
PAGE, SMALL_PAGE = 64 << 10, 4 << 10  # RM's
MOST = 128  # of nvidia-uvm, by nvidia/files/files.h
BASE, SIZE = 0x7F0000000000, 48 * MIB
CAP_MIB = 64
FB_GET_INFO_V2, FB_INFO_BYTES = nv.NV2080_CTRL_CMD_FB_GET_INFO_V2, 1028
HEAP_FREE = nv.NV2080_CTRL_FB_INFO_INDEX_HEAP_FREE
IOCTL = "16 "  # of x86-64, as /proc/PID/syscall begins
# How long a call waits for what does not end.
WAIT_S = 1.0
ROUNDED_S = 0.01  # the wait is counted in ms
LONG_S = 60.0


@pytest.fixture
def here(here: World) -> World:
    here.range(BASE, SIZE)
    waits(here, LONG_S)  # the machine may be busy
    return here


def allocate(tenant: Tenant, client: int, size: int = SIZE, handle: int = 0x100) -> int:
    """The RM status."""
    answer = tenant.alloc(client, 0xD0, handle, MEMORY, memory(size))
    assert (answer.result, answer.through) == (0, False)
    return answer.u32(0x28)


def free_mib(tenant: Tenant, client: int) -> int:
    params = struct.pack("I", 1) + struct.pack("II", HEAP_FREE, 0)
    answer = tenant.control(client, 0xD1, FB_GET_INFO_V2, params.ljust(FB_INFO_BYTES, b"\0"))
    assert (answer.result, answer.u32(0x1C)) == (0, OK)
    kib: int = struct.unpack_from("I", answer.params, 8)[0]
    return kib >> 10


def two(here: World) -> tuple[Tenant, Tenant, int]:
    """Two processes of a container of which the first has mapped 48 MiB of 64, and the client of the
    second."""
    first = here.tenant(cap_mib=CAP_MIB)
    second = here.mate(first)
    client = first.client()
    assert allocate(first, client) == OK
    answer = first.uvm_call(UVM_MAP_EXTERNAL, map_external(client, 0x100, BASE, SIZE))
    assert (answer.result, answer.through) == (0, False)
    return first, second, second.client()


def test_exited_process_leaves_its_memory_to_the_next(here: World) -> None:
    first, second, client = two(here)
    assert allocate(second, client) == NO_MEMORY
    first.kill()
    assert allocate(second, client) == OK
    assert here.memory_mib(second) == SIZE // MIB


def test_free_memory_query_waits_for_closing_files(here: World) -> None:
    first, second, client = two(here)
    assert free_mib(second, client) < CAP_MIB - SIZE // MIB
    first.kill()
    assert free_mib(second, client) == CAP_MIB


@pytest.mark.parametrize("exports", [False, True])
def test_charge_lasts_until_the_driver_has_forgotten_the_client(here: World, exports: bool) -> None:
    """Which it does last, and puts off while others call it. exports: to the client's own file."""
    keeps = ctypes.c_int.in_dll(here.lib, "on_card_keeps_clients")
    first, second, client = two(here)
    if exports:
        mine = first.client()
        assert allocate(first, mine, MIB) == OK
        to_itself = struct.pack("IIIIiI", 1, 0xD0, 0xD0, 0x100, first.ctl, 0)
        exported = first.control(mine, mine, nv.NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD, to_itself)
        assert (exported.result, exported.u32(0x1C)) == (0, OK)
    waits(here, WAIT_S)
    keeps.value = 1
    first.kill()
    assert allocate(second, client) == NO_MEMORY
    assert here.memory_mib(second) == SIZE // MIB + exports
    keeps.value = 0
    until(lambda: allocate(second, client) == OK, "its memory is free")


def test_page_tables_have_room_too(here: World) -> None:
    first, second, client = two(here)
    size = 8 * MIB
    here.range(2 * BASE, size)
    assert allocate(second, client, size) == OK
    rest = CAP_MIB * MIB - int(here.used_mib(second) * MIB)
    # RM gives memory of 2 MiB and more in pages of that size, and smaller memory in pages of 64 KiB.
    huge = rest // (2 * MIB) * 2 * MIB
    assert allocate(second, client, huge, handle=0x101) == OK
    assert allocate(second, client, (rest - huge) // PAGE * PAGE, handle=0x102) == OK

    # By its offset it is mapped in pages of 4 KiB, so that its tables take more than is left.
    gpus = (GPU_ONE, GPU_TWO)
    assert charged_bytes(Mapped(gpu, 2 * BASE, size - SMALL_PAGE) for gpu in gpus) >= PAGE

    def mapped() -> int:
        params = map_external(client, 0x100, 2 * BASE, size - SMALL_PAGE, gpus, SMALL_PAGE)
        answer = second.uvm_call(UVM_MAP_EXTERNAL, params)
        assert (answer.result, answer.through) == (0, False)
        return answer.u32(MAP_STATUS)

    assert mapped() == NO_MEMORY
    first.kill()
    assert mapped() == OK


def test_exited_process_leaves_its_managed_memory_to_the_next(here: World) -> None:
    first, second, _client = two(here)
    uvm = second.open_uvm()
    assert second.uvm_initialize(uvm).through
    assert second.uvm_call(nv.UVM_REGISTER_GPU, bytes(64), fd=uvm).through
    assert second.map(uvm, 1 << 40, SIZE) == -errno.ENOMEM
    first.kill()
    assert second.map(uvm, 1 << 40, SIZE) == 0


def test_control_file_that_is_closed(here: World) -> None:
    tenant, client = here.tenant_client(cap_mib=CAP_MIB)
    fd = tenant.open(CTL)
    other = tenant.alloc(0, 0, 0, ROOT, fd=fd).u32(8)
    for parent, handle, class_id, params in (
        (other, 0xD0, DEVICE, bytes(56)),
        (0xD0, 0xD1, SUBDEVICE, bytes(4)),
    ):
        assert tenant.alloc(other, parent, handle, class_id, params, fd=fd).u32(0x28) == OK
    assert tenant.alloc(other, 0xD0, 0x100, MEMORY, memory(SIZE), fd=fd).u32(0x28) == OK
    assert allocate(tenant, client) == NO_MEMORY
    tenant.tell("close", fd)
    assert allocate(tenant, client) == OK


def test_and_there_are_not_too_many_open_files(here: World) -> None:
    tenant = here.tenant()
    mate = here.mate(tenant)

    def called(who: Tenant, fd: int) -> int:
        return who.uvm_call(UVM_FREE, free_range(BASE, SIZE), fd=fd).result

    assert [called(mate, mate.open(UVM)) for _ in range(MOST)] == [0] * MOST
    assert called(tenant, tenant.uvm) == -errno.EMFILE
    mate.kill()
    assert called(tenant, tenant.uvm) == 0


def took_s(tenant: Tenant, client: int) -> float:
    began = time.monotonic()
    assert allocate(tenant, client) == NO_MEMORY
    return time.monotonic() - began


def test_close_wait_for_a_lost_file_happens_once(here: World) -> None:
    """A file of nvidia-uvm that is unlocated, and that is not looked for."""
    first, second, client = two(here)
    here.looks(3600)
    waits(here, WAIT_S)
    watched(here, second)
    first.kill()
    assert took_s(second, client) >= WAIT_S - ROUNDED_S
    assert min(took_s(second, client) for _ in range(5)) < WAIT_S
    # Until another has ended.
    watched(here, second)
    assert took_s(second, client) >= WAIT_S - ROUNDED_S


def test_close_wait_ignores_later_closes(here: World) -> None:
    """While another process of the container closes a file now and then."""
    first, second, client = two(here)
    here.looks(3600)
    waits(here, WAIT_S)
    third = here.mate(first)
    files = [third.open(CTL) for _ in range(40)]
    for fd in files:
        assert third.alloc(0, 0, 0, ROOT, fd=fd).through
    watched(here, third)
    first.kill()
    answered = threading.Event()

    def asks() -> None:
        assert allocate(second, client) == NO_MEMORY
        answered.set()

    asking = threading.Thread(target=asks)
    asking.start()
    closed = 0
    while not answered.wait(WAIT_S / 10):
        third.tell("close", files[closed])
        closed += 1
    asking.join()
    assert closed < len(files)


def goes_s(here: World) -> float:
    """From the end of a program that is waiting to that of its listener."""
    first, second, client = two(here)
    watched(here, second)
    first.kill()
    listeners = here.engine.state(first.id).listeners

    def asks() -> None:
        with suppress(AssertionError):  # it dies
            allocate(second, client)

    waiting = threading.Thread(target=asks)
    waiting.start()
    until(lambda: Path(f"/proc/{second.pid}/syscall").read_text().startswith(IOCTL), "it is in the call")
    began = time.monotonic()
    os.kill(second.pid, signal.SIGKILL)
    until(lambda: here.engine.state(first.id).listeners < listeners, "its listener has ended")
    took = time.monotonic() - began
    waiting.join()
    return took


def test_close_wait_ends_with_its_caller(here: World) -> None:
    here.looks(3600)
    assert goes_s(here) < LONG_S / 2
