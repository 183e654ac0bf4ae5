"""What RM counts for a process (GET_PID_INFO): docs/nvidia-memory.md."""

from __future__ import annotations

import ctypes
import mmap
import os

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
    VIRTUAL,
    Client,
    in_child,
    memory,
    space,
)
from tests.gpu import rm

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
    assert client.alloc(DEVICE, SPACE, space())[0] == 0
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
