"""What the NVIDIA driver is told when the arbiter calls it, against a resource manager that is a Python
function.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.native.fake_rm import (
    ALLOC,
    CONTROL,
    DISABLE,
    DUP,
    FREE,
    MAP,
    OS_EVENT,
    REGISTER_FD,
    SHARE,
    VERSION,
    VID_HEAP,
    Rm,
    cmd,
    peek,
    poke,
)
from tests.native.nvidia_parts import CARD, CTL, UVM, Driver, Process, driver, library, processes
from tests.support import rm_numbers as nv

POISON = 0xDEAD_0000_BEEF_0000
COMPOSE = nv.RS_SHARE_ACTION_FLAG_COMPOSE
# Statuses of RM lie below every errno (driver/rm_control.h).
RM_REFUSAL = 0x10000

SUBDEVICE_HANDLE = 0xD1


@dataclass
class Tenant:
    nvidia: Driver
    rm: Rm
    process: Process
    fd: int
    file: int

    def execute(self, nr: int, outer: bytes, params: bytes = b"", aux: int = 0) -> tuple[int, bytes, bytes]:
        out = ctypes.create_string_buffer(outer, len(outer))
        par = ctypes.create_string_buffer(params, len(params)) if params else None
        result = self.nvidia.call(
            "execute",
            ctypes.c_int64(self.file),
            ctypes.c_int64(aux),
            ctypes.c_uint32(cmd(nr, len(outer))),
            out,
            len(outer),
            par,
            len(params),
        )
        return result, out.raw, par.raw if par else b""


@pytest.fixture
def rm() -> Rm:
    return Rm()


@pytest.fixture
def tenant(rm: Rm, tmp_path: Path) -> Iterator[Tenant]:
    rm.cards = 1
    with driver(tmp_path, rm) as nvidia, processes() as start:
        nvidia.add_card(0)
        nvidia.add_card(1, minor=5)
        process = start()
        fd = process.tell("open", nvidia.nodes[CTL])
        rm.calls.clear()
        yield Tenant(nvidia, rm, process, fd, nvidia.identify(process, fd))


def alloc64(class_id: int, size: int = 0, params: int = POISON, rights: int = POISON) -> bytes:
    return struct.pack("IIIIQQIIII", 1, 2, 3, class_id, params, rights, size, 0, 0, 0)


def alloc32(class_id: int, size: int = 0, params: int = POISON) -> bytes:
    return struct.pack("IIIIQII", 1, 2, 3, class_id, params, size, 0)


def control(command: int, size: int) -> bytes:
    return struct.pack("IIIIQII", 1, 2, command, 0, POISON, size, 0)


@pytest.mark.parametrize(
    ("nr", "outer", "size_at"),
    [
        (ALLOC, alloc64(0x40, 128), 0x20),
        (ALLOC, alloc64(0x40, 0), 0x20),
        (ALLOC, alloc32(0x40, 128), 0x18),
        (CONTROL, control(nv.NV2080_CTRL_CMD_FB_GET_INFO_V2, 128), 0x18),
    ],
)
def test_pointers_are_ours_for_the_driver_and_theirs_for_the_caller(
    tenant: Tenant, nr: int, outer: bytes, size_at: int
) -> None:
    def answer(_nr: int, arg: int) -> int:
        poke(peek(arg, "Q", 0x10), "I", 4, 0x600D)
        poke(arg, "I", len(outer) - 4 if len(outer) == 32 else 0x28, 0x51)
        return 0

    tenant.rm.answer = answer
    result, after, params = tenant.execute(nr, outer, b"\x11" * 128)
    assert result == 0
    (call,) = tenant.rm.calls
    assert call.params == b"\x11" * 128
    assert call.inode == os.stat(tenant.nvidia.nodes[CTL]).st_ino
    assert struct.unpack_from("Q", call.outer, 0x10)[0] not in (0, POISON)
    assert struct.unpack_from("I", call.outer, size_at)[0] == 128
    if len(outer) == 48:
        assert struct.unpack_from("Q", call.outer, 0x18)[0] == 0, "a rights pointer of the caller's"
    status_at = len(outer) - 4 if len(outer) == 32 else 0x28
    assert after == outer[:status_at] + struct.pack("I", 0x51) + outer[status_at + 4 :]
    assert params[4:8] == struct.pack("I", 0x600D)


def test_pointer_without_parameters_is_never_followed(tenant: Tenant) -> None:
    assert tenant.execute(ALLOC, alloc64(nv.HOPPER_USERMODE_A, 64))[0] == 0
    assert struct.unpack_from("QQI", tenant.rm.calls[0].outer, 0x10) == (0, 0, 0)


def test_sizes_that_would_reach_beyond_our_copy(tenant: Tenant) -> None:
    assert (
        tenant.execute(CONTROL, control(nv.NV2080_CTRL_CMD_FB_GET_INFO_V2, 129), b"x" * 128)[0]
        == -errno.EINVAL
    )
    assert tenant.execute(FREE, bytes(16), b"x")[0] == -errno.EINVAL
    assert tenant.execute(FREE, bytes(12))[0] == -errno.ENOTTY
    assert tenant.rm.calls == []


def test_driver_s_refusal_leaves_the_arguments_alone(tenant: Tenant) -> None:
    def answer(_nr: int, arg: int) -> int:
        poke(arg, "I", 0, 0x0BAD)
        return -errno.ENODEV

    tenant.rm.answer = answer
    outer = alloc64(0x40, 128)
    assert tenant.execute(ALLOC, outer, bytes(128))[:2] == (-errno.ENODEV, outer)


def test_descriptor_in_the_struct_becomes_the_file_behind_it(tenant: Tenant) -> None:
    card = tenant.process.tell("open", tenant.nvidia.nodes[CARD])
    other = tenant.nvidia.identify(tenant.process, card)
    outer = struct.pack("i", 4242)
    assert tenant.execute(REGISTER_FD, outer, aux=other)[:2] == (0, outer)
    assert tenant.rm.calls[0].passed_inode == os.stat(tenant.nvidia.nodes[CARD]).st_ino
    assert tenant.execute(REGISTER_FD, outer)[0] == -errno.EINVAL, "never the caller's number in our table"


def test_calls_on_a_file_that_ended_or_hides(tenant: Tenant) -> None:
    outer = control(nv.NVA06C_CTRL_CMD_GET_INFO, 4)
    child = tenant.process.tell("fork")
    tenant.process.kill()
    assert tenant.execute(CONTROL, outer, bytes(4))[0] == -errno.EAGAIN
    os.kill(child, 9)
    while not tenant.nvidia.gone():
        pass
    assert tenant.execute(CONTROL, outer, bytes(4))[0] == -errno.EBADF
    assert tenant.rm.calls == []


@pytest.mark.parametrize(
    ("kind", "nr", "outer", "expected"),
    [
        (CTL, ALLOC, alloc64(0x0), True),
        (CTL, ALLOC, alloc64(0x1), True),
        (CTL, ALLOC, alloc32(0x41), True),
        (CTL, ALLOC, alloc32(0x5), False),
        (CTL, ALLOC, alloc64(0x79), False),
        (CTL, ALLOC, alloc64(0x71), True),
        (CTL, ALLOC, alloc64(nv.NV_MEMORY_FABRIC), True),
        (CTL, ALLOC, alloc64(nv.NV50_P2P), False),
        (CTL, ALLOC, alloc64(nv.RM_USER_SHARED_DATA), False),
        (CTL, ALLOC, alloc64(nv.AMPERE_SMC_PARTITION_REF), True),
        (CTL, ALLOC, alloc64(nv.AMPERE_SMC_EXEC_PARTITION_REF), True),
        (CTL, ALLOC, alloc64(0x40), False),
        (CTL, ALLOC, alloc64(nv.HOPPER_CHANNEL_GPFIFO_A), False),
        (CTL, CONTROL, control(nv.NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD, 8), True),
        (CTL, CONTROL, control(nv.NV0000_CTRL_CMD_OS_UNIX_CREATE_EXPORT_OBJECT_FD, 8), True),
        (CTL, CONTROL, control(nv.NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD, 8), False),
        (CTL, CONTROL, control(nv.NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD, 8), False),
        (CTL, CONTROL, control(nv.NV0000_CTRL_CMD_OS_UNIX_GET_EXPORT_OBJECT_INFO, 8), False),
        (CTL, CONTROL, control(nv.NV00FD_CTRL_CMD_GET_INFO, 8), True),
        (CTL, CONTROL, control(nv.NV00E0_CTRL_CMD_EXPORT_MEM, 8), True),
        (CTL, CONTROL, control(nv.NV2080_CTRL_CMD_FB_GET_INFO_V2, 8), False),
        (CTL, MAP, bytes(56), True),
        (CARD, OS_EVENT, bytes(16), False),
        (CTL, FREE, bytes(16), False),
        (CTL, REGISTER_FD, bytes(4), False),
        (CTL, VERSION, bytes(72), False),
        (CTL, VID_HEAP, struct.pack("III", 0, 0, 27) + bytes(172), False),
        (UVM, FREE, bytes(16), True),
    ],
)
def test_must_continue_tells_calls_of_the_caller(kind: int, nr: int, outer: bytes, expected: bool) -> None:
    buffer = ctypes.create_string_buffer(outer, len(outer))
    assert bool(library().harness_must_continue(kind, cmd(nr, len(outer)), buffer, len(outer))) is expected


def test_execute_refuses_calls_that_must_continue(tenant: Tenant) -> None:
    assert tenant.execute(ALLOC, alloc64(0x41))[0] == -errno.EINPROGRESS
    assert tenant.rm.calls == []


def disable(tenant: Tenant, channels: int, *, off: bool = True) -> int:
    array = (ctypes.c_uint32 * max(1, channels))(*range(0x1000, 0x1000 + channels))
    return tenant.nvidia.call(
        "disable", ctypes.c_int64(tenant.file), SUBDEVICE_HANDLE, array, channels, int(off)
    )


@pytest.mark.parametrize("off", [True, False])
def test_disable_channels_takes_own_handles_and_discards_no_work(tenant: Tenant, off: bool) -> None:
    assert disable(tenant, 64, off=off) == 0
    (call,) = tenant.rm.calls
    client, handle, command = struct.unpack_from("III", call.outer)
    assert (client, handle, command, len(call.params)) == (0xC1, SUBDEVICE_HANDLE, DISABLE, 536)
    said, count, only_scheduling, rewind, event = struct.unpack_from("<BxxxIBB6xQ", call.params)
    assert (said, count, only_scheduling, rewind, event) == (off, 64, 0, 0, 0)
    assert struct.unpack_from("64I", call.params, 0x18) == (0xC1,) * 64
    assert struct.unpack_from("64I", call.params, 0x118) == tuple(range(0x1000, 0x1000 + 64))


def test_disable_refuses_65_channels(tenant: Tenant) -> None:
    assert disable(tenant, 65) == -errno.EINVAL
    assert tenant.rm.calls == []


@pytest.mark.parametrize(
    ("status", "expected"),
    [(0x23, -errno.ESRCH), (0x57, -errno.EIO), (0x33, -errno.EIO), (0x56, -(RM_REFUSAL + 0x56))],
)
def test_failed_suspension_is_reported(tenant: Tenant, status: int, expected: int) -> None:
    """One stale handle fails the whole list: only a client that is gone has nothing left to run."""

    def answer(nr: int, arg: int) -> int:
        poke(arg, "I", 0x1C, status)
        return 0

    tenant.rm.answer = answer
    assert disable(tenant, 2) == expected


def test_no_driver_is_an_error(rm: Rm, tmp_path: Path) -> None:
    rm.answer = lambda _nr, _arg: -errno.ENODEV
    with pytest.raises(OSError) as raised:
        Driver(tmp_path, rm)
    assert raised.value.errno == errno.ENODEV


def test_userd_is_shared_duplicated_and_mapped_where_the_channel_keeps_it(
    tenant: Tenant, tmp_path: Path
) -> None:
    (tmp_path / "dev" / "nvidia0").write_bytes(bytes(0x600 + 0x8C) + struct.pack("I", 77) + bytes(4096))
    tenant.rm.calls.clear()
    put = tenant.nvidia.call("userd", ctypes.c_int64(tenant.file), 0, 0x40, ctypes.c_uint64(0x5600))
    assert put == 77
    share, duplicate, mapping, free = [c for c in tenant.rm.calls if c.nr != REGISTER_FD]
    assert [c.nr for c in (share, duplicate, mapping, free)] == [SHARE, DUP, MAP, FREE]
    assert share.inode == os.stat(tenant.nvidia.nodes[CTL]).st_ino, "asked through the tenant's file"
    own = os.stat(tmp_path / "dev" / "nvidiactl").st_ino
    assert {duplicate.inode, mapping.inode, free.inode} == {own}
    root = tenant.rm.next_handle
    assert struct.unpack_from("IIIIHB", share.outer) == (0xC1, 0x40, root, 1, 3, COMPOSE)
    client, device, handle, source_client, source = struct.unpack_from("5I", duplicate.outer)
    assert (client, source_client, source) == (root, 0xC1, 0x40)
    assert struct.unpack_from("III", mapping.outer) == (root, device, handle)
    assert struct.unpack_from("QQ", mapping.outer, 0x10) == (0x5000, 4096)
    assert mapping.passed_inode == os.stat(tmp_path / "dev" / "nvidia0").st_ino
    assert struct.unpack_from("III", free.outer) == (root, device, handle)


@pytest.mark.parametrize("refused", [SHARE, DUP, MAP])
def test_userd_that_cannot_be_seen_leaves_nothing_behind(tenant: Tenant, refused: int) -> None:
    status_at = {SHARE: 0x14, DUP: 0x18, MAP: 0x28}[refused]

    def answer(nr: int, arg: int) -> int:
        if nr == refused:
            poke(arg, "I", status_at, 0x1B)
        return 0

    tenant.rm.answer = answer
    before = len(os.listdir("/proc/self/fd"))
    answered = tenant.nvidia.call("userd", ctypes.c_int64(tenant.file), 0, 0x40, ctypes.c_uint64(0))
    assert answered == -(RM_REFUSAL + 0x1B)
    assert len(os.listdir("/proc/self/fd")) == before
    assert (FREE in [c.nr for c in tenant.rm.calls]) == (refused == MAP)


@pytest.mark.parametrize(
    ("card", "memory", "offset", "expected"),
    [(0, 0, 0, -errno.ENODATA), (1, 0x40, 0, -errno.ENODEV), (0, 0x40, 4096 - 256, -errno.EINVAL)],
)
def test_channel_without_userd_has_no_mapping(
    tenant: Tenant, card: int, memory: int, offset: int, expected: int
) -> None:
    place = (card, memory, ctypes.c_uint64(offset))
    assert tenant.nvidia.call("userd", ctypes.c_int64(tenant.file), *place) == expected
    assert tenant.rm.calls == []
