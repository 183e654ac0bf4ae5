"""Groups, channels and what they take of the card, as the part of RM on the host decides it."""

import os
import struct

from lab.claims import decides
from lab.tests.answers import CHANNEL_MADE, OWN_SPACE
from lab.tests.loaded import params_bytes
from lab.tests.nv import (
    CHANNEL_KIND,
    COMPOSE,
    COMPUTE_KIND,
    DEVICE,
    HOST,
    IS_VIRTUAL,
    LAZY,
    MIB,
    SHARE_ALL,
    SHARE_CLIENT,
    SPACE,
    SUBDEVICE,
    VIRTUAL,
    Client,
    Uvm,
    in_child,
    memory,
    vaspace,
)
from lab.tests.uvm import BASE, Registered
from tests.gpu import rm
from tests.support import rm_numbers as numbers

GRAPHICS = 1
# Of 0x20800179 in 570, 560, 550, 545 and 535.
RUNLIST_BYTES = (1008, 672, 512, 504, 496)
RANGE, RANGE_BYTES = 0x300000000, 64 * MIB
# PDB_PROP_GPU_MOVE_CTX_BUFFERS_TO_PMA is of Ampere and later.
NONE_TAKEN = {"tu104": "RM takes contexts and instance blocks from a reserve that HEAP_FREE does not count"}


def group(client: Client, engine: int = GRAPHICS) -> int:
    return client.must_alloc(DEVICE, rm.GROUP, struct.pack("<5I", 0, 0, 0, engine, 0))


def channel(client: Client, parent: int, share: int, area: int, errors: int) -> tuple[int, int]:
    params = bytearray(368)
    struct.pack_into("<IIQIIII", params, 0, errors, area, BASE, 1024, 0, share, 0)
    struct.pack_into("<I", params, 32, area)
    struct.pack_into("<Q", params, 64, 1024 * 8)
    return client.alloc(parent, client.class_like(CHANNEL_KIND), bytes(params))


class Working:
    """A group with a channel of the compute engine, not yet registered with nvidia-uvm."""

    def __init__(self, client: Client | None = None) -> None:
        self.on = Registered(client=client)
        client = self.client = self.on.client
        self.group = group(client)
        self.area = client.memory(2 * MIB)
        self.errors = client.memory(4096, rm.MEMORY_HOST, attr=HOST)
        assert self.on.uvm.create_range(BASE, 2 * MIB) == 0
        assert self.on.map(self.area, BASE, 2 * MIB) == 0
        self.share = client.must_alloc(
            self.group, numbers.FERMI_CONTEXT_SHARE_A, struct.pack("<III", self.on.vaspace, 1, 0)
        )
        status, self.channel = channel(client, self.group, self.share, self.area, self.errors)
        assert status == 0, hex(status)
        assert client.alloc(self.channel, client.class_like(COMPUTE_KIND), bytes(16))[0] == 0

    def register(self, fd: int = -1) -> int:
        params = struct.pack(
            "<16siII4xQQI4x", self.on.uuid, -1, self.client.root, self.channel, RANGE, RANGE_BYTES, 0
        )
        return self.on.uvm.call(numbers.UVM_REGISTER_CHANNEL, bytearray(params), 48, fd)

    def unregister(self) -> int:
        # From 590 on a channel is looked for on all cards of the file.
        params = struct.pack("<16sIII", self.on.uuid, self.client.root, self.channel, 0)
        params = params[-params_bytes("UVM_UNREGISTER_CHANNEL") :]
        return self.on.uvm.call(numbers.UVM_UNREGISTER_CHANNEL, bytearray(params), len(params) - 4)

    def schedule(self, on: bool) -> int:
        params = bytes([on]).ljust(params_bytes("NVA06C_CTRL_CMD_GPFIFO_SCHEDULE"), b"\0")
        return self.client.control(self.group, numbers.NVA06C_CTRL_CMD_GPFIFO_SCHEDULE, params)[0]


@decides("calls without CAP_SYS_ADMIN make ordinary channels", whatever=CHANNEL_MADE)
def channels_without_privileges() -> None:
    def as_a_user() -> int:
        os.setuid(1000)
        Working()
        return 0

    assert in_child(as_a_user) == 0


@decides(
    "a group with a channel that is not registered with nvidia-uvm cannot be taken off by SCHEDULE",
    whatever=CHANNEL_MADE,
)
def unregistered_channel_is_not_scheduled() -> None:
    work = Working()
    assert work.schedule(True) == numbers.NV_ERR_INVALID_STATE
    assert work.schedule(False) == numbers.NV_ERR_INVALID_STATE


@decides(
    "REGISTER_CHANNEL on behalf needs the group shared, and is made then",
    "UNREGISTER_CHANNEL on a duplicate, by another process, after the channel's FREE: OK or INVALID_CHANNEL",
    "MAP_EXTERNAL_ALLOCATION and REGISTER_CHANNEL look nothing up by the descriptor of the control file",
    whatever=CHANNEL_MADE,
)
def unregistered_after_free() -> None:
    work = Working()
    assert in_child(work.register) == numbers.NV_ERR_INSUFFICIENT_PERMISSIONS
    assert work.client.share(work.group, SHARE_ALL, action=COMPOSE) == 0
    assert in_child(work.register) == 0, "made on behalf, with the group shared"
    assert work.client.free(work.channel) == 0
    assert work.client.free(work.group) == 0
    assert in_child(work.unregister) == 0


@decides(
    "UVM takes no channel on a file that has not its address space, and an address space on one file",
    whatever=CHANNEL_MADE,
)
def channel_needs_its_address_space() -> None:
    work = Working()
    other = Uvm()
    assert other.hold_memory() == 0
    assert other.register_gpu(work.on.uuid, work.client) == 0
    assert work.register(other.fd) == numbers.NV_ERR_INVALID_DEVICE
    other.close()


@decides(
    "a group that is unregistered after its FREE has let go of its memory when the call returns",
    whatever=CHANNEL_MADE,
    not_on=NONE_TAKEN,
)
def unregistered_group_lets_go() -> None:
    work = Working()
    before = work.client.free_bytes()
    assert work.register() == 0
    assert work.client.free(work.channel) == 0
    assert work.client.free(work.group) == 0
    held = work.client.free_bytes()
    assert work.unregister() == 0
    assert work.client.free_bytes() > held, (before, held)


@decides(
    "SHARE and DUP_OBJECT work for USERD's memory, under the arbiter's own device object",
    whatever=CHANNEL_MADE,
)
def userd_is_shared() -> None:
    work = Working()

    def arbiter() -> list[int]:
        own = Client()
        shared = int(work.client.share(work.area, SHARE_CLIENT, own.root, COMPOSE))
        status, name = own.dup(work.client.root, work.area)
        card = rm.node("nvidia0")
        register = rm.Call(rm.REGISTER_FD, bytearray(struct.pack("<i", own.ctl)), bytearray(), -1)
        file_status = rm.on_file(card, register)
        outer = struct.pack("<IIIIQQQIIiI", own.root, DEVICE, name, 0, 8192, 4096, 0, 0, 1, card, 0)
        return [shared, status, file_status, own.make(rm.Call(rm.MAP, bytearray(outer), bytearray(), -1))]

    assert in_child(arbiter) == [0, 0, 0, 0]


@decides(rests_on=("NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_CONTEXT_BUFFERS_INFO",), not_on=NONE_TAKEN)
def group_takes_its_contexts() -> None:
    """Decides nothing: how much contexts take is the firmware's word."""
    client = Client()
    group(client)
    before = client.free_bytes()
    group(client)
    assert client.free_bytes() < before
    client.close()


@decides("LAZY virtual memory takes no memory of the card", whatever=OWN_SPACE)
def lazy_takes_nothing() -> None:
    client = Client()
    before = client.free_bytes()
    for _ in range(4):
        assert client.alloc(DEVICE, VIRTUAL, memory(1 << 34, flags=IS_VIRTUAL | LAZY))[0] == 0
    assert client.free_bytes() == before
    client.close()


@decides("an address space takes no more than 64 KiB")
def address_spaces_are_small() -> None:
    client = Client()
    before = client.free_bytes()
    for _ in range(64):
        client.must_alloc(DEVICE, SPACE, vaspace())
    assert before - client.free_bytes() <= 64 * 0x10000
    client.close()


@decides("the parameters of an allocation say by which pages it is mapped (attr, PAGE_SIZE)")
def pages_are_written_back() -> None:
    client = Client()
    pages = {}
    for size, attr in ((4096, 1 << 23), (0x10000, 0), (4 * MIB, 0), (4 * MIB, 1 << 23), (4 * MIB, 3 << 23)):
        assert client.alloc(DEVICE, rm.MEMORY, memory(size, attr=attr))[0] == 0
        pages[size, attr] = struct.unpack_from("<I", client.params, 0x18)[0] >> 23 & 3
    assert pages[4096, 1 << 23] == 1, pages
    assert pages[4 * MIB, 1 << 23] == 1, pages
    assert 0 not in pages.values(), f"DEFAULT is replaced by what was taken: {pages}"
    client.close()


@decides(
    "a driver takes the question of runlist bases in one size of those of 535 to 570 (496 to 1008 bytes), "
    "which can be tried out"
)
def size_of_the_runlist_question() -> None:
    client = Client()
    taken = []
    for size in RUNLIST_BYTES:
        params = struct.pack("<I", GRAPHICS).ljust(size, b"\0")
        if client.control(SUBDEVICE, rm.RUNLIST_BASE, params)[0] != numbers.NV_ERR_INVALID_ARGUMENT:
            taken.append(size)
    assert taken == [params_bytes("NV2080_CTRL_CMD_GPU_GET_ENGINE_RUNLIST_PRI_BASE")], taken
    client.close()
