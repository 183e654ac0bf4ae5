"""Memory that several processes of a container have, by descriptors or by SHARE: one charge until its last name."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from nvidia_mediated import Answer, Tenant, World, world
from rm_params import CARD, CTL, GROUP, MEMORY, MEMORY_SYSTEM, MIB, ROOT, SHARE, alloc_struct, group, memory
from watching import removed, watched

from sim import cards
from tests.support.waiting import until

OK, NOT_PERMITTED, INVALID_CLIENT, INVALID_PARENT, INVALID_PARAMETER = 0, 0x1B, 0x23, 0x36, 0x3B
NO_MEMORY, NOT_SUPPORTED, NOT_FOUND, OUT_OF_RANGE, IN_USE, DUPLICATE = 0x51, 0x56, 0x57, 0x5B, 0x63, 0x19
EXPORT, IMPORT, INFO, CREATE, EXPORT_SEVERAL, IMPORT_SEVERAL = 0x3D05, 0x3D06, 0x3D08, 0x3D0A, 0x3D0B, 0x3D0C
INHERITED = 0xD04
DUP_OBJECT, STATUS, HANDLE, OTHER = 0x34, 0x1C, 0x100, 0x101
DEVICE = 0xD0
FOR_ALL, FOR_USER, FOR_CLIENT, FOR_PROCESS = 1, 2, 3, 4
REVOKE, COMPOSE = 1, 4
SIZE = 48 * MIB


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


def allocate(
    tenant: Tenant, client: int, handle: int = HANDLE, size: int = SIZE, class_id: int = MEMORY
) -> int:
    answer = tenant.alloc(client, DEVICE, handle, class_id, memory(size))
    assert (answer.result, answer.through) == (0, False)
    return answer.u32(0x28)


def control(tenant: Tenant, client: int, command: int, params: bytes) -> tuple[int, bytes]:
    """The RM status, and the parameters afterwards."""
    answer = tenant.control(client, client, command, params)
    assert (answer.result, answer.through) == (0, False)
    return answer.u32(STATUS), answer.params


def exported(tenant: Tenant, client: int, fd: int, handle: int = HANDLE) -> int:
    return control(tenant, client, EXPORT, struct.pack("IIIIiI", 1, DEVICE, DEVICE, handle, fd, 0))[0]


def imported(tenant: Tenant, client: int, fd: int, handle: int = HANDLE) -> int:
    return control(tenant, client, IMPORT, struct.pack("iIIII", fd, 1, DEVICE, DEVICE, handle))[0]


def export_several(
    tenant: Tenant,
    client: int,
    fd: int,
    handles: list[int],
    *,
    index: int = 0,
    places: int = 8,
    device: int = DEVICE,
) -> int:
    head = struct.pack("iIH64s2x", fd, device, places, b"of its maker")
    objects = struct.pack(f"{len(handles)}I", *handles).ljust(4 * 512, b"\0")
    return control(tenant, client, EXPORT_SEVERAL, head + objects + struct.pack("HH", len(handles), index))[
        0
    ]


def import_several(
    tenant: Tenant, client: int, fd: int, handles: list[int], index: int = 0
) -> tuple[int, tuple[int, ...], list[int]]:
    """The status, the types and the handles."""
    objects = struct.pack(f"{len(handles)}I", *handles).ljust(4 * 128, b"\0")
    params = struct.pack("iI", fd, DEVICE) + objects + bytes(128) + struct.pack("HH", len(handles), index)
    status, after = control(tenant, client, IMPORT_SEVERAL, params)
    return (
        status,
        tuple(after[520 : 520 + len(handles)]),
        list(struct.unpack_from(f"{len(handles)}I", after, 8)),
    )


def freed(tenant: Tenant, client: int, handle: int = HANDLE) -> int:
    return tenant.free(client, handle).u32(0xC)


def share(
    tenant: Tenant, client: int, handle: int, to: int, *, target: int = 0, action: int = 0, mask: int = 1
) -> int:
    outer = struct.pack("IIIIHBxI", client, handle, target, mask, to, action, 0)
    answer = tenant.ioctl(tenant.ctl, SHARE, outer)
    assert answer.result == 0
    return answer.u32(0x14)


def duplicated(tenant: Tenant, client: int, source: int, handle: int = HANDLE, name: int = OTHER) -> int:
    answer: Answer = tenant.ioctl(
        tenant.ctl, DUP_OBJECT, struct.pack("7I", client, DEVICE, name, source, handle, 0, 0)
    )
    assert answer.result == 0
    return answer.u32(0x18)


def pair(here: World, cap_mib: int = 64) -> tuple[Tenant, int, Tenant, int]:
    """Two processes of one container that may have 64 MiB, each with a client; the first has 48."""
    first = here.tenant(cap_mib=cap_mib)
    second = here.mate(first)
    clients = first.client(), second.client()
    assert allocate(first, clients[0]) == OK
    return first, clients[0], second, clients[1]


def given(first: Tenant, client: int, second: Tenant) -> tuple[int, int]:
    """The first process's descriptor through which its memory is exported, and the second's of the same file."""
    fd = first.open(CTL)
    assert exported(first, client, fd) == OK
    return fd, int(second.tell("take", first.pid, fd))


def close(tenant: Tenant, fd: int) -> None:
    assert tenant.tell("close", fd) == "0"


def driver_has(here: World) -> int:
    return cards.account(here.card.admin_socket).cards[0].used_bytes


def test_one_charge_until_the_last_name_has_ended(here: World) -> None:
    first, client, second, other = pair(here)
    fd, theirs = given(first, client, second)
    assert imported(second, other, theirs) == OK
    assert here.used_mib(first) == 48
    assert freed(first, client) == OK
    close(first, fd)
    close(second, theirs)
    assert here.used_mib(first) == 48
    assert allocate(first, client) == NO_MEMORY
    assert freed(second, other) == OK
    until(lambda: here.used_mib(first) == 0, "the charge ends with the file")
    assert driver_has(here) == 0


def test_the_file_alone_keeps_the_charge(here: World) -> None:
    first, client, second, _other = pair(here)
    fd, theirs = given(first, client, second)
    assert freed(first, client) == OK
    close(first, fd)
    assert here.used_mib(first) == 48
    assert driver_has(here) == SIZE
    assert allocate(first, client) == NO_MEMORY
    close(second, theirs)
    until(lambda: here.used_mib(first) == 0, "the charge ends with the file")
    assert driver_has(here) == 0
    assert allocate(first, client) == OK


def test_so_does_one_in_a_message_whose_exporter_has_ended(here: World) -> None:
    first, client, second, other = pair(here)
    _fd, theirs = given(first, client, second)
    assert second.tell("send", theirs) == "0"
    first.kill()
    assert here.used_mib(second) == 48
    assert allocate(second, other) == NO_MEMORY
    again = int(second.tell("receive"))
    assert imported(second, other, again) == OK
    close(second, again)
    assert freed(second, other) == OK
    until(lambda: here.used_mib(second) == 0, "the charge ends with the file")


def test_another_container_cannot_import_and_the_first_pays_while_it_has_the_file(here: World) -> None:
    first, client, _second, _other = pair(here)
    stranger = here.tenant(cap_mib=64)
    theirs = stranger.client()
    fd, taken = given(first, client, stranger)
    assert imported(stranger, theirs, taken) == NOT_PERMITTED
    assert import_several(stranger, theirs, taken, [HANDLE])[0] == NOT_PERMITTED
    assert export_several(stranger, theirs, taken, [0]) == NOT_PERMITTED
    assert control(stranger, theirs, INFO, struct.pack("i", taken).ljust(80, b"\0"))[0] == NOT_PERMITTED
    assert freed(first, client) == OK
    close(first, fd)
    assert (here.used_mib(first), here.used_mib(stranger)) == (48, 0)
    first.kill()
    assert here.used_mib(first) == 48
    close(stranger, taken)
    until(lambda: here.used_mib(first) == 0, "the charge ends with the file")
    assert driver_has(here) == 0


def test_places_of_a_file(here: World) -> None:
    first, client, second, other = pair(here)
    assert freed(first, client) == OK
    for number in range(4):
        assert allocate(first, client, HANDLE + number, 8 * MIB) == OK
    fd = first.open(CTL)
    assert export_several(first, client, fd, [HANDLE, 0, HANDLE + 1], places=4) == OK
    assert export_several(first, client, fd, [HANDLE + 2], index=3) == OK
    assert export_several(first, client, fd, [HANDLE + 2, HANDLE + 2], index=3) == OUT_OF_RANGE
    assert exported(first, client, fd) == IN_USE
    for number in range(4):
        assert freed(first, client, HANDLE + number) == OK
    assert here.used_mib(first) == 24
    theirs = int(second.tell("take", first.pid, fd))
    status, types, _ = import_several(second, other, theirs, [0x201, 0x202, 0x203, 0x204])
    assert (status, types) == (OK, (1, 0, 1, 1))
    assert [freed(second, other, handle) for handle in (0x201, 0x202)] == [OK, OK]
    assert allocate(first, client, OTHER, 8 * MIB) == OK
    # In the place of another, which ends; and nothing in the place of one that has another name yet.
    assert export_several(first, client, fd, [OTHER]) == OK
    assert here.used_mib(first) == 24
    assert export_several(first, client, fd, [0, 0, 0], index=1) == OK
    assert here.used_mib(first) == 24
    assert freed(second, other, 0x203) == OK
    assert here.used_mib(first) == 16
    status, info = control(second, other, INFO, struct.pack("i", theirs).ljust(80, b"\0"))
    assert (status, struct.unpack_from("iIIH12s", info)) == (OK, (theirs, 0, 0xFFFFFFFF, 4, b"of its maker"))
    assert driver_has(here) == 16 * MIB


def test_rm_chooses_names(here: World) -> None:
    first, client, second, other = pair(here)
    _fd, theirs = given(first, client, second)
    status, types, handles = import_several(second, other, theirs, [0])
    assert (status, types) == (OK, (1,))
    assert handles[0]
    assert freed(second, other, handles[0]) == OK


def test_what_cannot_be_exported(here: World) -> None:
    first, client, _second, other = pair(here, cap_mib=2048)
    fd = first.open(CTL)
    assert first.alloc(client, DEVICE, 0x300, GROUP, group()).u32(0x28) == OK
    for handle, status in ((0x300, NOT_SUPPORTED), (DEVICE, NOT_SUPPORTED), (0x999, NOT_FOUND)):
        assert exported(first, client, fd, handle) == status
    # The driver would export a group, and keep what it takes.
    assert ctypes.c_uint32.in_dll(here.lib, "on_card_exports").value == 0
    assert exported(first, other, fd) == INVALID_CLIENT
    assert exported(first, client, -1) == INVALID_PARAMETER
    assert exported(first, client, first.open(CARD)) == INVALID_PARAMETER
    assert exported(first, client, first.uvm) == INVALID_PARAMETER
    assert exported(first, client, 0) == INVALID_PARAMETER
    assert export_several(first, client, fd, [HANDLE], places=0) == INVALID_PARAMETER
    assert export_several(first, client, fd, [HANDLE], places=513) == NO_MEMORY
    assert export_several(first, client, fd, [HANDLE], device=0) == INVALID_PARAMETER
    assert export_several(first, client, fd, [HANDLE], device=0xD1) == INVALID_PARAMETER
    assert imported(first, client, fd, OTHER) == INVALID_PARAMETER
    assert exported(first, client, fd) == OK
    assert freed(first, client) == OK
    close(first, fd)
    assert first.free(client, 0x300).u32(0xC) == OK
    until(lambda: here.used_mib(first) == 0, "the charge ends with the file")


def test_a_no_of_the_driver_books_nothing(here: World) -> None:
    first, client, second, other = pair(here)
    fd = first.open(CTL)
    here.refuses(control=EXPORT_SEVERAL)
    assert exported(first, client, fd) == NOT_SUPPORTED
    assert freed(first, client) == OK
    assert here.used_mib(first) == 0
    here.refuses()
    assert allocate(first, client) == OK
    another = first.open(CTL)
    assert export_several(first, client, another, [HANDLE]) == OK
    here.refuses(control=EXPORT_SEVERAL)
    assert export_several(first, client, another, [HANDLE], index=1) == NOT_SUPPORTED
    here.refuses()
    assert export_several(first, client, another, [0]) == OK
    assert freed(first, client) == OK
    assert here.used_mib(first) == 0
    assert allocate(first, client) == OK
    assert exported(first, client, fd) == OK
    here.refuses(control=EXPORT_SEVERAL)
    assert export_several(first, client, fd, [0]) == NOT_SUPPORTED
    here.refuses(control=IMPORT_SEVERAL)
    theirs = int(second.tell("take", first.pid, fd))
    assert imported(second, other, theirs) == NOT_SUPPORTED
    here.refuses()
    assert freed(first, client) == OK
    assert here.used_mib(first) == 48
    assert imported(second, other, theirs) == OK


def test_an_import_that_fails_in_the_middle_ends_nothing_else(here: World) -> None:
    """RM frees what the call names at the places before, at those too where nothing was exported."""
    first, client, second, other = pair(here)
    fd = first.open(CTL)
    assert export_several(first, client, fd, [0, HANDLE, HANDLE]) == OK
    theirs = int(second.tell("take", first.pid, fd))
    assert allocate(second, other, HANDLE, 8 * MIB) == OK
    assert import_several(second, other, theirs, [HANDLE, OTHER, HANDLE])[0] == DUPLICATE
    assert here.used_mib(first) == 56
    assert freed(second, other, OTHER) == OK
    assert freed(second, other, HANDLE) == OK
    assert here.used_mib(first) == 48
    assert import_several(second, other, theirs, [0, OTHER, HANDLE])[0] == OK


def test_a_program_may_export_to_the_file_of_its_client(here: World) -> None:
    first, client, second, other = pair(here)
    assert exported(first, client, first.ctl) == OK
    assert freed(first, client) == OK
    theirs = int(second.tell("take", first.pid, first.ctl))
    assert imported(second, other, theirs) == OK
    assert freed(second, other) == OK
    assert here.used_mib(first) == 48
    first.kill()
    close(second, theirs)
    until(lambda: here.used_mib(first) == 0, "the charge ends with the file")


def test_what_a_file_has_cannot_be_named(here: World) -> None:
    first, client, second, other = pair(here)
    given(first, client, second)
    assert {duplicated(second, other, 0, slot * 512) for slot in range(64)} == {NOT_PERMITTED}


def test_host_memory_is_exported_and_duplicated_for_nothing(here: World) -> None:
    first, client, second, other = pair(here)
    assert allocate(first, client, OTHER, 4096, MEMORY_SYSTEM) == OK
    fd = first.open(CTL)
    assert export_several(first, client, fd, [OTHER]) == OK
    theirs = int(second.tell("take", first.pid, fd))
    assert import_several(second, other, theirs, [0x201])[:2] == (OK, (2,))
    assert share(first, client, OTHER, FOR_ALL) == OK
    assert duplicated(second, other, client, OTHER, 0x202) == OK
    assert here.used_mib(first) == 48


def test_the_next_engine_has_the_same_books(here: World) -> None:
    first, client, second, other = pair(here)
    fd, theirs = given(first, client, second)
    assert imported(second, other, theirs) == OK
    assert share(first, client, HANDLE, FOR_ALL) == OK
    here.restart()
    assert here.used_mib(first) == 48
    assert duplicated(second, other, client) == OK
    assert freed(second, other, OTHER) == OK
    assert freed(first, client) == OK
    assert freed(second, other) == OK
    assert here.used_mib(first) == 48
    assert imported(second, other, theirs) == OK
    here.restart()
    close(first, fd)
    close(second, theirs)
    assert here.used_mib(first) == 48
    assert freed(second, other) == OK
    until(lambda: here.used_mib(first) == 0, "the charge ends with the file")


def test_a_file_that_the_next_engine_does_not_find_keeps_its_charge(here: World) -> None:
    first, client, second, other = pair(here)
    fd, theirs = given(first, client, second)
    assert freed(first, client) == OK
    close(first, fd)
    assert second.tell("send", theirs) == "0"
    here.restart()
    assert here.used_mib(first) == 48
    assert allocate(second, other) == NO_MEMORY


def test_the_kernels_word_about_uvm_says_nothing_of_a_control_file(here: World) -> None:
    first, client, second, other = pair(here)
    fd, theirs = given(first, client, second)
    assert freed(first, client) == OK
    close(first, fd)
    assert second.tell("send", theirs) == "0"
    here.open_files(0)
    here.restart()
    watched(here, first)
    assert here.used_mib(first) == 48
    assert allocate(second, other) == NO_MEMORY
    first.kill()
    second.kill()
    until(lambda: removed(here, first), "it ends with its tenant")


def test_the_audit_counts_every_name_and_still_finds_a_cheat(here: World) -> None:
    first, client, second, other = pair(here)
    fd, theirs = given(first, client, second)
    assert imported(second, other, theirs) == OK
    second.client()
    assert freed(first, client) == OK
    second.client()
    assert here.used_mib(first) == 48
    # The ledger has 48 MiB more than the driver counts to the process, which is no room for a cheat.
    assert freed(second, other) == OK
    flip = alloc_struct(other, DEVICE, 0x600, MEMORY, 128)
    cheat = second.alloc(0, 0, 0, ROOT, memory(16 * MIB), flip=flip)
    assert cheat.through
    close(first, fd)
    assert second.control(other, other, 0x201, bytes(128)).result == -1


def test_everybody_is_written_down_and_the_driver_hears_of_one(here: World) -> None:
    first, client, second, other = pair(here)
    assert duplicated(second, other, client) == NOT_PERMITTED
    assert share(first, client, HANDLE, FOR_ALL) == OK
    assert duplicated(second, other, client) == OK
    told = ctypes.c_uint32.in_dll(here.lib, "on_card_shares").value
    assert told & (1 << FOR_ALL) == 0
    assert told & (1 << FOR_CLIENT)
    assert freed(second, other, OTHER) == OK
    assert share(first, client, HANDLE, FOR_ALL, action=REVOKE | COMPOSE) == OK
    assert duplicated(second, other, client) == NOT_PERMITTED
    assert here.used_mib(first) == 48


def test_policies_that_the_driver_judges(here: World) -> None:
    first, client, second, other = pair(here)
    stranger = here.tenant(cap_mib=64)
    theirs = stranger.client()
    assert share(first, client, HANDLE, FOR_USER, action=COMPOSE) == OK
    assert duplicated(second, other, client) == OK
    assert freed(second, other, OTHER) == OK
    assert share(first, client, HANDLE, FOR_PROCESS) == OK
    assert duplicated(second, other, client) == NOT_PERMITTED
    assert share(first, client, HANDLE, FOR_CLIENT, target=theirs) == NOT_PERMITTED
    assert share(first, client, HANDLE, FOR_CLIENT, target=other) == OK
    assert duplicated(second, other, client) == OK
    # In the place of all: the process itself is not in the list any more.
    assert duplicated(first, first.client(), client, HANDLE, 0x301) == NOT_PERMITTED
    assert share(first, client, HANDLE, FOR_ALL, mask=2) == NOT_PERMITTED
    assert share(first, client, HANDLE, FOR_ALL) == OK
    assert duplicated(stranger, theirs, client) == NOT_PERMITTED


def test_what_the_client_shares_holds_for_all_that_is_not_shared_by_itself(here: World) -> None:
    first, client, second, other = pair(here)
    everybody = struct.pack("IIHBx", 0, 1, FOR_ALL, 0)
    assert control(first, client, INHERITED, everybody) == (OK, everybody)
    assert ctypes.c_uint32.in_dll(here.lib, "on_card_shares").value & (1 << FOR_ALL) == 0
    assert duplicated(second, other, client) == OK
    assert freed(second, other, OTHER) == OK
    assert share(first, client, HANDLE, FOR_PROCESS) == OK
    assert duplicated(second, other, client) == NOT_PERMITTED
    assert share(first, client, HANDLE, FOR_PROCESS, action=REVOKE | COMPOSE) == OK
    assert duplicated(second, other, client) == NOT_PERMITTED
