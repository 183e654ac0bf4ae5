"""Memory of the card and events, as the part of RM on the host decides them."""

import ctypes
import functools
import mmap
import os
import struct

from lab.claims import decides
from lab.tests.nv import DEVICE, MIB, OS_DESCRIPTOR, SUBDEVICE, Client, in_child, memory
from tests.gpu import rm
from tests.support import rm_numbers as numbers

NOT_OPEN, PIECE = 777, 256 * MIB


@decides(
    "memory above HEAP_FREE is refused with NO_MEMORY and takes nothing, and what HEAP_FREE says can be had"
)
def the_heap_is_the_limit() -> None:
    client = Client()
    before = client.free_bytes()
    assert client.alloc(DEVICE, rm.MEMORY, memory(before + MIB))[0] == numbers.NV_ERR_NO_MEMORY
    assert client.free_bytes() == before
    taken = 0
    while client.free_bytes() >= PIECE:
        assert client.alloc(DEVICE, rm.MEMORY, memory(PIECE))[0] == 0, taken
        taken += PIECE
        assert before - client.free_bytes() == taken
    assert client.alloc(DEVICE, rm.MEMORY, memory(PIECE))[0] == numbers.NV_ERR_NO_MEMORY
    client.close()


@decides("memory needs an owner: 0 is INVALID_OWNER")
def memory_has_an_owner() -> None:
    client = Client()
    params = bytearray(memory(MIB))
    struct.pack_into("<I", params, 0, 0)
    assert client.alloc(DEVICE, rm.MEMORY, bytes(params))[0] == numbers.NV_ERR_INVALID_OWNER
    client.close()


@decides("ALLOC_MEMORY of class 0x71 is taken on a registered file of the card alone")
def pages_by_the_cards_file() -> None:
    client = Client()
    pages = mmap.mmap(-1, MIB)
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    flags = 1 << 4 | 1 << 12 | 1 << 30
    head = struct.pack("<IIIIII", client.root, DEVICE, 0x7171, OS_DESCRIPTOR, flags, 0)
    outer = head + struct.pack("<QQIIiI", address, MIB - 1, 0, 0, -1, 0)
    assert client.make(rm.Call(rm.ALLOC_MEMORY, bytearray(outer), bytearray(), -1)) < 0, (
        "on the control file"
    )
    assert client.os_descriptor(pages, address)[0] == 0
    client.close()


@decides("an event's descriptor is compared by its number, and ALLOC_OS_EVENT looks nothing up by it")
def events_by_number() -> None:
    client = Client()
    register = rm.Call(rm.REGISTER_FD, bytearray(struct.pack("<i", client.ctl)), bytearray(), -1)
    assert rm.on_file(client.card, register) == 0

    def on_behalf() -> list[int]:
        os.fstat(client.card)
        outer = struct.pack("<IIII", client.root, DEVICE, NOT_OPEN, 0)
        told = client.make(
            rm.Call(numbers.NV_ESC_ALLOC_OS_EVENT, bytearray(outer), bytearray(), -1), 0xC, client.card
        )
        made = []
        for number in (NOT_OPEN, NOT_OPEN + 1):
            params = struct.pack("<IIIIQ", client.root, SUBDEVICE, numbers.NV01_EVENT_OS_EVENT, 0, number)
            client.next += 1
            call = rm.alloc(client.root, SUBDEVICE, client.next, numbers.NV01_EVENT_OS_EVENT, params)
            made.append(client.make(call, fd=client.card))
        return [told, *made]

    told, same, other = in_child(on_behalf)
    assert (told, same) == (0, 0), (told, same)
    assert other != 0
    client.close()


@decides("ALLOC_MEMORY of class 0x40 makes no memory of the card, for root neither")
def deprecated_call_takes_no_memory() -> None:
    def by(user: int) -> list[int]:
        os.setuid(user)
        client = Client()
        register = rm.Call(rm.REGISTER_FD, bytearray(struct.pack("<i", client.ctl)), bytearray(), -1)
        assert rm.on_file(client.card, register) == 0
        before = client.free_bytes()
        outer = struct.pack("<IIIIII", client.root, DEVICE, 0x4040, rm.MEMORY, 0, 0)
        outer += struct.pack("<QQIIiI", 0, 4 * MIB - 1, 0, 0, -1, 0)
        status = client.make(rm.Call(rm.ALLOC_MEMORY, bytearray(outer), bytearray(), -1), fd=client.card)
        return [status, before - client.free_bytes(), sum(client.pid_info(os.getpid()))]

    for user in (0, 1000):
        status, *taken = in_child(functools.partial(by, user))
        assert taken == [0, 0], (user, hex(status), taken)
