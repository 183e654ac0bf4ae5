"""The engine dies at each call of the driver that a tenant's call comes to; the next one goes on with it.

The tenant waits all the while, or is torn out of the wait by a signal, with which its call comes again
under a new name, or comes no more.
"""

import errno
import itertools
import signal
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest

from sim import cards
from tests.native.dying import WAIT_S, mortal, tear
from tests.native.nvidia_mediated import Answer, Tenant, World
from tests.native.retained_steps import (
    CHANNEL,
    GROUP_HANDLE,
    REGISTER_STATUS,
    SPACE,
    SPACE_STATUS,
    calls,
    make_channel,
    make_group,
    make_space,
    uvm_initialize_file,
)
from tests.native.rm_params import (
    ALLOC_OS_EVENT,
    CTL,
    FREE_OS_EVENT,
    MEMORY,
    MIB,
    SHARE,
    UVM_FREE,
    UVM_MAP_EXTERNAL,
    UVM_REGISTER_CHANNEL,
    UVM_REGISTER_GPU_VASPACE,
    UVM_UNMAP_EXTERNAL,
    group,
    memory,
)
from tests.native.uvm_asked import beside
from tests.native.uvm_params import (
    free_range,
    map_external,
    register_space,
    unmap_external,
    uvm_register_channel,
)
from tests.support import rm_numbers as nv
from tests.support.waiting import until

# Some thirty engines, one after the other, on a machine that does much else.
pytestmark = pytest.mark.timeout(600)

DEVICE, FIRST, SECOND, THIRD = 0xD0, 0x100, 0x101, 0x102
SIZE, BASE = 16 * MIB, 0x7F0000000000
STATUS, CONTROL_STATUS, FREE_STATUS, DUP_STATUS = 0x28, 0x1C, 0xC, 0x18
OS_UNIX = "NV0000_CTRL_CMD_OS_UNIX_"
EXPORT, IMPORT, EXPORT_SEVERAL, IMPORT_SEVERAL = (
    getattr(nv, OS_UNIX + name)
    for name in (
        "EXPORT_OBJECT_TO_FD",
        "IMPORT_OBJECT_FROM_FD",
        "EXPORT_OBJECTS_TO_FD",
        "IMPORT_OBJECTS_FROM_FD",
    )
)
CALLS_MAX = 16


@dataclass
class Program:
    """A tenant with two memories, a group with a channel and a file of nvidia-uvm, and what it made before
    its call. shares: a file that it exports to.
    """

    here: World
    tenant: Tenant
    client: int
    shares: int

    def control(self, command: int, params: bytes) -> tuple[int, int]:
        answer = self.tenant.control(self.client, self.client, command, params)
        return answer.result, answer.u32(CONTROL_STATUS)

    def export(self) -> tuple[int, int]:
        return self.control(EXPORT, struct.pack("IIIIiI", 1, DEVICE, DEVICE, FIRST, self.shares, 0))

    def export_several(self, *handles: int) -> tuple[int, int]:
        head = struct.pack("iIH64s2x", self.shares, DEVICE, 8, b"its maker's")
        objects = struct.pack(f"{len(handles)}I", *handles).ljust(4 * 512, b"\0")
        return self.control(EXPORT_SEVERAL, head + objects + struct.pack("HH", len(handles), 0))

    def import_(self, handle: int) -> tuple[int, int]:
        return self.control(IMPORT, struct.pack("iIIII", self.shares, 1, DEVICE, DEVICE, handle))

    def import_several(self, *handles: int) -> tuple[int, int]:
        objects = struct.pack(f"{len(handles)}I", *handles).ljust(4 * 128, b"\0")
        head = struct.pack("iI", self.shares, DEVICE)
        return self.control(IMPORT_SEVERAL, head + objects + bytes(128) + struct.pack("HH", len(handles), 0))

    def uvm(self, number: int, params: bytes, status_at: int) -> tuple[int, int]:
        return said(self.tenant.uvm_call(number, params), status_at)

    def alloc(self, handle: int, class_id: int, params: bytes) -> tuple[int, int]:
        return said(self.tenant.alloc(self.client, DEVICE, handle, class_id, params), STATUS)

    def free(self, handle: int) -> tuple[int, int]:
        return said(self.tenant.free(self.client, handle), FREE_STATUS)

    def dup(self) -> tuple[int, int]:
        outer = struct.pack("7I", self.client, DEVICE, THIRD, self.client, FIRST, 0, 0)
        return said(self.tenant.ioctl(self.tenant.ctl, nv.NV_ESC_RM_DUP_OBJECT, outer), DUP_STATUS)

    def share(self) -> tuple[int, int]:
        outer = struct.pack("IIIIHBxI", self.client, FIRST, 0, 1, 1, 0, 0)
        return said(self.tenant.ioctl(self.tenant.ctl, SHARE, outer), 0x14)

    def event(self, number: int) -> tuple[int, int]:
        outer = struct.pack("IIII", self.client, 0, self.tenant.card, 0)
        return said(self.tenant.ioctl(self.tenant.card, number, outer), 12)

    def map(self) -> tuple[int, int]:
        return self.uvm(UVM_MAP_EXTERNAL, map_external(self.client, FIRST, BASE, SIZE), 9260)

    def unmap(self) -> tuple[int, int]:
        return self.uvm(UVM_UNMAP_EXTERNAL, unmap_external(BASE, SIZE), 32)

    def free_range(self) -> tuple[int, int]:
        return self.uvm(UVM_FREE, free_range(BASE, SIZE), 16)

    def register_space(self) -> tuple[int, int]:
        return self.uvm(UVM_REGISTER_GPU_VASPACE, register_space(self.client, SPACE), SPACE_STATUS)

    def uvm_register_channel(self) -> tuple[int, int]:
        return self.uvm(UVM_REGISTER_CHANNEL, uvm_register_channel(self.client, CHANNEL), REGISTER_STATUS)

    def books(self) -> tuple[float, int, bool, int]:
        state = self.here.engine.state(self.tenant.id)
        retained = bool(self.here.lib.on_card_retains(self.client, CHANNEL))
        return self.here.used_mib(self.tenant), state.objects, retained, self.here.shared


def said(answer: Answer, status_at: int) -> tuple[int, int]:
    assert not answer.through
    return answer.result, answer.u32(status_at)


Call = Callable[[Program], tuple[int, int]]
# What a program does, and what it has done before.
CALLS: dict[str, tuple[Call, tuple[Call, ...]]] = {
    "alloc": (lambda p: p.alloc(THIRD, MEMORY, memory(SIZE)), ()),
    "group": (lambda p: p.alloc(THIRD, nv.KEPLER_CHANNEL_GROUP_A, group()), ()),
    "free": (lambda p: p.free(FIRST), ()),
    "free of a registered group": (lambda p: p.free(GROUP_HANDLE), (Program.uvm_register_channel,)),
    "dup": (Program.dup, ()),
    "share": (Program.share, ()),
    "export": (Program.export, ()),
    "export of two": (lambda p: p.export_several(FIRST, SECOND), ()),
    "end of an export": (lambda p: p.export_several(0, 0), (lambda p: p.export_several(FIRST, SECOND),)),
    "import": (lambda p: p.import_(THIRD), (Program.export,)),
    "import by any name": (lambda p: p.import_(0), (Program.export,)),
    "import of two": (
        lambda p: p.import_several(THIRD, THIRD + 1),
        (lambda p: p.export_several(FIRST, SECOND),),
    ),
    "import of two by any name": (
        lambda p: p.import_several(0, 0),
        (lambda p: p.export_several(FIRST, SECOND),),
    ),
    "event": (lambda p: p.event(ALLOC_OS_EVENT), ()),
    "end of an event": (lambda p: p.event(FREE_OS_EVENT), (lambda p: p.event(ALLOC_OS_EVENT),)),
    "mapping": (Program.map, ()),
    "unmapping": (Program.unmap, (Program.map,)),
    "end of a range": (Program.free_range, (Program.map,)),
    "registered space": (Program.register_space, ()),
    "registered channel": (Program.uvm_register_channel, ()),
}
DEATHS = [(nth, answered) for nth in range(1, CALLS_MAX) for answered in (False, True)]


def program(here: World, before: tuple[Call, ...]) -> Program:
    tenant, client = here.tenant_client(cap_mib=1024)
    made = Program(here, tenant, client, tenant.open(CTL))
    here.range(BASE, SIZE)
    for handle in (FIRST, SECOND):
        assert made.alloc(handle, MEMORY, memory(SIZE)) == (0, 0)
    make_group(tenant, client)
    make_channel(tenant, client)
    make_space(tenant, client)
    uvm_initialize_file(tenant, tenant.uvm)
    for call in before:
        assert call(made) == (0, 0)
    return made


def undisturbed(here: World, name: str) -> tuple[tuple[float, int, bool, int], Program]:
    """What is in the account after the call."""
    call, before = CALLS[name]
    one = program(here, before)
    assert call(one) == (0, 0)
    found = one.books()
    here.lib.on_card_client_ended(one.client)
    return found, one


def all_end(here: World, programs: list[Program]) -> None:
    """With nothing left, by the arbiter's account and by the card's own."""
    for one in programs:
        one.tenant.kill()
        here.lets_go(one.tenant, one.tenant.uvm)
    for one in programs:
        until(partial(ended, one), "its files are gone")
        assert here.used_mib(one.tenant) == 0
    assert here.shared == 0
    until(lambda: cards.account(here.card.admin_socket).cards[0].used_bytes == 0, "the card is empty")


def ended(one: Program) -> bool:
    files: int = one.here.engine.state(one.tenant.id).files
    return files == 0


@pytest.mark.parametrize("torn", [False, True], ids=["waits", "torn"])
@pytest.mark.parametrize("name", CALLS)
def test_call_is_made_once_whenever_the_engine_dies(here: World, name: str, torn: bool) -> None:
    call, before = CALLS[name]
    right, first = undisturbed(here, name)
    programs = [first]
    for nth, answered in DEATHS:
        one = program(here, before)
        with beside(one.tenant) as other, mortal(here, nth, answered=answered) as engine:
            calling = other.submit(call, one)
            died = engine.dies(calling)
            if died and torn:
                tear(one.tenant)
            here.goes_on()
            assert calling.result(WAIT_S) == (0, 0), (nth, answered)
        assert one.books() == right, (nth, answered)
        here.lib.on_card_client_ended(one.client)
        programs.append(one)
        if not died:
            break
    assert not died
    all_end(here, programs)


@pytest.mark.parametrize("name", CALLS)
def test_call_that_is_given_up_leaves_nothing_behind(here: World, name: str) -> None:
    """Its engine died, and a signal has ended it: whether it was made is not known."""
    call, before = CALLS[name]
    programs = []
    for nth, answered in DEATHS:
        one = program(here, before)
        with beside(one.tenant) as other, mortal(here, nth, answered=answered) as engine:
            calling = other.submit(call, one)
            died = engine.dies(calling)
            if died:
                tear(one.tenant, signal.SIGUSR2)
            here.goes_on()
            assert calling.result(WAIT_S)[0] == (-errno.EINTR if died else 0), (nth, answered)
        calls(one.tenant, one.client)
        assert here.shared == 0
        here.lib.on_card_client_ended(one.client)
        programs.append(one)
        if not died:
            break
    all_end(here, programs)


@pytest.mark.parametrize("name", ["alloc", "export", "import of two by any name", "registered channel"])
def test_call_is_made_once_though_engine_after_engine_dies(here: World, name: str) -> None:
    """In its first calls of the driver, with the caller torn out of each wait."""
    call, before = CALLS[name]
    right, first = undisturbed(here, name)
    programs = [first]
    for deaths in itertools.product([(1, False), (1, True), (2, True)], repeat=2):
        one = program(here, before)
        with beside(one.tenant) as other:
            calling = None
            for nth, answered in deaths:
                with mortal(here, nth, answered=answered) as engine:
                    calling = calling or other.submit(call, one)
                    if engine.dies(calling):
                        tear(one.tenant)
            here.goes_on()
            assert calling is not None
            assert calling.result(WAIT_S) == (0, 0), deaths
        assert one.books() == right, deaths
        here.lib.on_card_client_ended(one.client)
        programs.append(one)
    all_end(here, programs)
