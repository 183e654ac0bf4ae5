"""What RM counts for a process (GET_PID_INFO): docs/nvidia-memory.md."""

import ctypes
import mmap
import os
import struct

from lab.claims import decides
from lab.tests.answers import GROUP_MADE, OWN_SPACE
from lab.tests.nv import (
    COMPOSE,
    DEVICE,
    HOST,
    IS_VIRTUAL,
    LAZY,
    MIB,
    SHARE_ALL,
    SPACE,
    SUBDEVICE,
    VIRTUAL,
    Client,
    in_child,
    memory,
    vaspace,
)
from tests.gpu import rm
from tests.support.rm_numbers import NV20_SUBDEVICE_0, NV2080_CTRL_CMD_GPU_GET_PIDS

ME = os.getpid


@decides(
    "GET_PID_INFO counts memory of class 0x40, as the driver rounds it, and no host "
    "memory, pages of the caller's or virtual memory",
    whatever=OWN_SPACE,
)
def kinds_of_memory() -> None:
    client = Client()
    assert client.pid_info(ME()) == (0, 0, 0)
    client.memory(16 * MIB)
    assert client.pid_info(ME()) == (16 * MIB, 0, 0)
    client.memory(1000)
    counted = client.pid_info(ME())
    assert counted == (16 * MIB + 0x10000, 0, 0)
    client.memory(8 * MIB, rm.MEMORY_HOST, attr=HOST)
    pages = mmap.mmap(-1, 4 * MIB)
    status, _ = client.os_descriptor(pages, ctypes.addressof(ctypes.c_char.from_buffer(pages)))
    assert status == 0
    assert client.alloc(DEVICE, VIRTUAL, memory(1 << 30, flags=IS_VIRTUAL | LAZY))[0] == 0
    assert client.alloc(DEVICE, SPACE, vaspace())[0] == 0
    assert client.pid_info(ME()) == counted
    client.close()


@decides("GET_PID_INFO counts each name of memory, the first as owned and the others as duplicated")
def names_of_memory() -> None:
    client, second = Client(), Client()
    handle = client.memory(16 * MIB)
    status, name = second.dup(client.root, handle)
    assert status == 0
    assert client.pid_info(ME()) == (0, 16 * MIB, 16 * MIB)
    assert client.free(handle) == 0
    assert client.pid_info(ME()) == (16 * MIB, 0, 0)
    assert second.share(name, SHARE_ALL, action=COMPOSE) == 0

    def elsewhere() -> list[tuple[int, int, int]]:
        other = Client()
        assert other.dup(second.root, name)[0] == 0
        return [other.pid_info(os.getpid()), other.pid_info(os.getppid())]

    assert in_child(elsewhere) == [[0, 0, 16 * MIB], [0, 16 * MIB, 0]]
    client.close()
    second.close()


@decides("GET_PID_INFO counts for the process that made the client, whoever calls")
def whose_memory() -> None:
    client = Client()

    def made_by_a_child() -> list[int]:
        assert client.alloc(DEVICE, rm.MEMORY, memory(4 * MIB))[0] == 0
        return [sum(client.pid_info(pid)) for pid in (os.getpid(), os.getppid())]

    assert in_child(made_by_a_child) == [0, 4 * MIB]
    client.close()


@decides("GET_PID_INFO counts nothing for a channel group", whatever=GROUP_MADE)
def groups() -> None:
    client = Client()
    assert client.alloc(DEVICE, rm.GROUP, (1).to_bytes(4, "little").rjust(16, b"\0") + bytes(4))[0] == 0
    assert client.pid_info(ME()) == (0, 0, 0)
    client.close()


def listed(client: Client, class_id: int) -> list[int]:
    params = struct.pack("<III", 0, class_id, 0).ljust(3812, b"\0")
    status, answer = client.control(SUBDEVICE, NV2080_CTRL_CMD_GPU_GET_PIDS, params)
    assert status == 0
    return list(struct.unpack_from(f"<{struct.unpack_from('<I', answer, 8)[0]}I", answer, 12))


@decides(
    "GET_PIDS lists the processes with a subdevice by its class, and none by a device's; GET_PID_INFO counts "
    "memory of those that have a device alone"
)
def which_processes() -> None:
    client = Client()
    assert ME() in listed(client, NV20_SUBDEVICE_0)
    assert listed(client, rm.DEVICE) == []

    def with_a_device_alone() -> list[bool]:
        bare = Client(attach=False)
        bare.card = rm.node("nvidia0")
        device = struct.pack("<II", 0, bare.root).ljust(56, b"\0")
        bare.must_alloc(bare.root, rm.DEVICE, device, DEVICE)
        bare.memory(16 * MIB)
        return [ME() in listed(client, NV20_SUBDEVICE_0), client.pid_info(ME()) == (16 * MIB, 0, 0)]

    assert in_child(with_a_device_alone) == [False, True]
    client.close()
