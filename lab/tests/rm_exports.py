"""Export to a file and import from it: whose descriptor, whose client, and how long the memory stays."""

import os
import struct

from lab.claims import decides
from lab.tests.loaded import params_bytes, version
from lab.tests.nv import DEVICE, MIB, Client, in_child
from tests.gpu import rm
from tests.support import rm_numbers as numbers

PLACES, DMA_BUF_OBJECTS = 4, 128
# From 570 on two bytes come before the handles, of how it is to be mapped.
DMA_BUF_MAPPED_SINCE = 570


def export(client: Client, handle: int, fd: int, index: int = 0) -> int:
    params = struct.pack("<iIH66x", fd, DEVICE, PLACES) + struct.pack("<I", handle).ljust(2048, b"\0")
    params += struct.pack("<HH", 1, index)
    return client.control(client.root, numbers.NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD, params)[0]


def imported(client: Client, fd: int, index: int = 0) -> tuple[int, int, int]:
    """Status, handle and type."""
    client.next += 1
    params = struct.pack("<iI", fd, DEVICE) + struct.pack("<I", client.next).ljust(512, b"\0")
    params += bytes(128) + struct.pack("<HH", 1, index)
    status, answer = client.control(
        client.root, numbers.NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD, params
    )
    return status, client.next, answer[520]


def info(client: Client, fd: int) -> int:
    params = struct.pack("<i", fd).ljust(
        params_bytes("NV0000_CTRL_CMD_OS_UNIX_GET_EXPORT_OBJECT_INFO"), b"\0"
    )
    return client.control(client.root, numbers.NV0000_CTRL_CMD_OS_UNIX_GET_EXPORT_OBJECT_INFO, params)[0]


@decides(
    "the descriptor of an export may be one of the arbiter's, of the tenant's file; its "
    "client is called on from another process"
)
def export_on_behalf() -> None:
    client = Client()
    handle = client.memory(8 * MIB)
    theirs = rm.node("nvidiactl")

    def by_an_arbiter() -> int:
        ours = os.dup(theirs)
        os.close(theirs)
        return export(client, handle, ours)

    assert in_child(by_an_arbiter) == 0

    def by_another() -> list[int]:
        other = Client()
        status, name, kind = imported(other, theirs)
        return [status, kind, sum(other.pid_info(os.getpid())), other.free(name)]

    assert in_child(by_another) == [0, 1, 8 * MIB, 0]
    client.close()


@decides("exported memory stays until the last close of its file, when its maker has ended and freed it")
def exported_memory_stays() -> None:
    watch = Client()
    before = watch.free_bytes()
    client = Client()
    handle = client.memory(8 * MIB)
    file = rm.node("nvidiactl")
    assert export(client, handle, file) == 0
    assert client.pid_info(os.getpid()) == (0, 8 * MIB, 0), "RM's own name is no process's"
    assert client.free(handle) == 0
    assert client.pid_info(os.getpid()) == (0, 0, 0)
    client.close()
    assert before - watch.free_bytes() >= 8 * MIB
    status, name, _ = imported(watch, file)
    assert status == 0
    os.close(file)
    assert before - watch.free_bytes() >= 8 * MIB
    assert watch.free(name) == 0
    assert before - watch.free_bytes() < 8 * MIB
    watch.close()


def to_dma_buf(client: Client, handle: int, size: int) -> tuple[int, int]:
    """Status, and the descriptor."""
    how = "I" if int(version().split(".")[0]) >= DMA_BUF_MAPPED_SINCE else ""
    layout = struct.Struct(
        f"<iIIIIxxxxQ{how}{DMA_BUF_OBJECTS}I{'xxxx' if how else ''}{DMA_BUF_OBJECTS}Q{DMA_BUF_OBJECTS}QIxxxx"
    )
    none = [0] * (DMA_BUF_OBJECTS - 1)
    mapped = [0] if how else []
    outer = layout.pack(-1, client.root, 1, 1, 0, size, *mapped, handle, *none, 0, *none, size, *none, 0)
    call = rm.Call(numbers.NV_ESC_EXPORT_TO_DMABUF_FD, bytearray(outer), bytearray(), -1)
    status = client.make(call, layout.size - 8, client.card)
    return status, int.from_bytes(call.outer[:4], "little")


@decides(
    "what a dma-buf holds stays until its last descriptor is closed, when its maker has ended and freed it"
)
def dma_buf_stays() -> None:
    watch = Client()
    before = watch.free_bytes()
    client = Client()
    handle = client.memory(8 * MIB)
    status, ours = to_dma_buf(client, handle, 8 * MIB)
    assert status == 0, status
    other = os.dup(ours)
    assert client.free(handle) == 0
    client.close()
    os.close(ours)
    assert before - watch.free_bytes() >= 8 * MIB
    os.close(other)
    assert before - watch.free_bytes() < 8 * MIB
    watch.close()


@decides("a numObjects of 1 takes no other path in RM than many")
def one_object_at_its_place() -> None:
    client = Client()
    file = rm.node("nvidiactl")
    handles = [client.memory(MIB) for _ in range(PLACES)]
    for index, handle in enumerate(handles):
        assert export(client, handle, file, index) == 0, index
    for index in range(PLACES):
        status, _, kind = imported(client, file, index)
        assert (status, kind) == (0, 1), index
    assert export(client, handles[0], file, PLACES), "a place beyond those of the first export"
    client.close()
    os.close(file)


@decides("GET_EXPORT_OBJECT_INFO tells, to any client, whether something was exported through a file")
def what_is_exported() -> None:
    client = Client()
    handle = client.memory(MIB)
    file = rm.node("nvidiactl")
    assert info(client, file) != 0
    assert export(client, handle, file) == 0
    assert info(client, file) == 0
    assert in_child(lambda: info(Client(), file)) == 0
    client.close()
    os.close(file)


@decides("an export is to a file of the control node alone")
def other_files_take_no_export() -> None:
    client = Client()
    handle = client.memory(MIB)
    read, write = os.pipe()
    for fd in (read, client.card, -1):
        assert export(client, handle, fd) != 0, fd
    client.close()
    os.close(read)
    os.close(write)
