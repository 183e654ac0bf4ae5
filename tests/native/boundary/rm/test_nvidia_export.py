"""Memory that several processes of a container have, by descriptors or by SHARE: one charge until its last
name.
"""

import ctypes
import struct

from sim import cards
from tests.native.export_steps import (
    DEVICE,
    FOR_ALL,
    HANDLE,
    INVALID_CLIENT,
    INVALID_PARAMETER,
    NOT_PERMITTED,
    OK,
    OTHER,
    SIZE,
    allocate,
    control,
    duplicate,
    free,
    pair,
    share,
)
from tests.native.nvidia_mediated import Tenant, World
from tests.native.rm_params import (
    CARD,
    CTL,
    GROUP,
    MEMORY,
    MEMORY_SYSTEM,
    MIB,
    ROOT,
    alloc_struct,
    group,
    memory,
)
from tests.native.watching import removed, watched
from tests.support import rm_numbers as nv
from tests.support.waiting import until

NO_MEMORY, NOT_SUPPORTED = nv.NV_ERR_NO_MEMORY, nv.NV_ERR_NOT_SUPPORTED
NOT_FOUND = nv.NV_ERR_OBJECT_NOT_FOUND
OUT_OF_RANGE, IN_USE = nv.NV_ERR_OUT_OF_RANGE, nv.NV_ERR_STATE_IN_USE
DUPLICATE = nv.NV_ERR_INSERT_DUPLICATE_NAME
EXPORT = nv.NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD
IMPORT = nv.NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD
INFO = nv.NV0000_CTRL_CMD_OS_UNIX_GET_EXPORT_OBJECT_INFO
EXPORT_SEVERAL = nv.NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD
IMPORT_SEVERAL = nv.NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD


def export(tenant: Tenant, client: int, fd: int, handle: int = HANDLE) -> int:
    return control(tenant, client, EXPORT, struct.pack("IIIIiI", 1, DEVICE, DEVICE, handle, fd, 0))[0]


def import_(tenant: Tenant, client: int, fd: int, handle: int = HANDLE) -> int:
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


def give(first: Tenant, client: int, second: Tenant) -> tuple[int, int]:
    """The first process's descriptor through which its memory is exported, and the second's of the same
    file."""
    fd = first.open(CTL)
    assert export(first, client, fd) == OK
    return fd, int(second.tell("take", first.pid, fd))


def close(tenant: Tenant, fd: int) -> None:
    assert tenant.tell("close", fd) == "0"


def driver_has(here: World) -> int:
    return cards.account(here.card.admin_socket).cards[0].used_bytes


def test_export_is_charged_once_until_its_last_name_ends(here: World) -> None:
    first, client, second, other = pair(here)
    fd, theirs = give(first, client, second)
    assert import_(second, other, theirs) == OK
    assert here.used_mib(first) == 48
    assert free(first, client) == OK
    close(first, fd)
    close(second, theirs)
    assert here.used_mib(first) == 48
    assert allocate(first, client) == NO_MEMORY
    assert free(second, other) == OK
    until(lambda: here.used_mib(first) == 0, "the charge ends with the file")
    assert driver_has(here) == 0


def test_file_alone_keeps_the_charge(here: World) -> None:
    first, client, second, _other = pair(here)
    fd, theirs = give(first, client, second)
    assert free(first, client) == OK
    close(first, fd)
    assert here.used_mib(first) == 48
    assert driver_has(here) == SIZE
    assert allocate(first, client) == NO_MEMORY
    close(second, theirs)
    until(lambda: here.used_mib(first) == 0, "the charge ends with the file")
    assert driver_has(here) == 0
    assert allocate(first, client) == OK


def test_export_in_a_message_outlives_its_exporter(here: World) -> None:
    first, client, second, other = pair(here)
    _fd, theirs = give(first, client, second)
    assert second.tell("send", theirs) == "0"
    first.kill()
    assert here.used_mib(second) == 48
    assert allocate(second, other) == NO_MEMORY
    again = int(second.tell("receive"))
    assert import_(second, other, again) == OK
    close(second, again)
    assert free(second, other) == OK
    until(lambda: here.used_mib(second) == 0, "the charge ends with the file")


def test_import_by_another_container_is_refused(here: World) -> None:
    first, client, _second, _other = pair(here)
    stranger, theirs = here.tenant_client(cap_mib=64)
    fd, taken = give(first, client, stranger)
    assert import_(stranger, theirs, taken) == NOT_PERMITTED
    assert import_several(stranger, theirs, taken, [HANDLE])[0] == NOT_PERMITTED
    assert export_several(stranger, theirs, taken, [0]) == NOT_PERMITTED
    assert control(stranger, theirs, INFO, struct.pack("i", taken).ljust(80, b"\0"))[0] == NOT_PERMITTED
    assert free(first, client) == OK
    close(first, fd)
    assert (here.used_mib(first), here.used_mib(stranger)) == (48, 0)
    first.kill()
    assert here.used_mib(first) == 48
    close(stranger, taken)
    until(lambda: here.used_mib(first) == 0, "the charge ends with the file")
    assert driver_has(here) == 0


def test_places_of_a_file(here: World) -> None:
    first, client, second, other = pair(here)
    assert free(first, client) == OK
    for number in range(4):
        assert allocate(first, client, HANDLE + number, 8 * MIB) == OK
    fd = first.open(CTL)
    assert export_several(first, client, fd, [HANDLE, 0, HANDLE + 1], places=4) == OK
    assert export_several(first, client, fd, [HANDLE + 2], index=3) == OK
    assert export_several(first, client, fd, [HANDLE + 2, HANDLE + 2], index=3) == OUT_OF_RANGE
    assert export(first, client, fd) == IN_USE
    for number in range(4):
        assert free(first, client, HANDLE + number) == OK
    assert here.used_mib(first) == 24
    theirs = int(second.tell("take", first.pid, fd))
    status, types, _ = import_several(second, other, theirs, [0x201, 0x202, 0x203, 0x204])
    assert (status, types) == (OK, (1, 0, 1, 1))
    assert [free(second, other, handle) for handle in (0x201, 0x202)] == [OK, OK]
    assert allocate(first, client, OTHER, 8 * MIB) == OK
    # No place changes hands: one that is taken is given back first.
    assert export_several(first, client, fd, [OTHER]) == IN_USE
    assert export_several(first, client, fd, [OTHER, OTHER], index=1) == IN_USE
    assert (here.used_mib(first), driver_has(here)) == (32, 32 * MIB)
    assert export_several(first, client, fd, [0, 0, 0]) == OK
    assert here.used_mib(first) == 24
    assert export_several(first, client, fd, [OTHER]) == OK
    assert free(second, other, 0x203) == OK
    assert here.used_mib(first) == 16
    status, info = control(second, other, INFO, struct.pack("i", theirs).ljust(80, b"\0"))
    assert (status, struct.unpack_from("iIIH12s", info)) == (OK, (theirs, 0, 0xFFFFFFFF, 4, b"of its maker"))
    assert driver_has(here) == 16 * MIB


def test_same_memory_at_its_place_again_changes_nothing(here: World) -> None:
    """So a call that a signal or the end of mgpud broke off is made again."""
    first, client, second, other = pair(here)
    fd, theirs = give(first, client, second)
    for places in range(2, 5):
        assert export_several(first, client, fd, [HANDLE], places=places) == OK
    assert import_(second, other, theirs) == OK
    here.refuses(control=EXPORT_SEVERAL)
    assert export_several(first, client, fd, [HANDLE], places=5) == NOT_SUPPORTED
    assert free(first, client) == OK
    assert free(second, other) == OK
    assert here.used_mib(first) == 48
    close(first, fd)
    close(second, theirs)
    until(lambda: here.used_mib(first) == 0, "the charge ends with the file")
    assert driver_has(here) == 0


def test_thousand_exports_and_imports_cost_what_the_first_does(here: World) -> None:
    first, client, second, other = pair(here, cap_mib=4096)

    def round_trip() -> None:
        assert allocate(first, client, OTHER, 2 * MIB) == OK
        fd = first.open(CTL)
        assert export(first, client, fd, OTHER) == OK
        theirs = int(second.tell("take", first.pid, fd))
        assert import_(second, other, theirs) == OK
        assert [free(first, client, OTHER), free(second, other)] == [OK, OK]
        close(first, fd)
        close(second, theirs)

    round_trip()
    until(lambda: here.used_mib(first) == 48, "the charge of the first has ended with its file")
    for _ in range(1000):
        round_trip()
    until(lambda: here.used_mib(first) == 48, "so has that of all")
    assert driver_has(here) == SIZE


def test_rm_chooses_names(here: World) -> None:
    first, client, second, other = pair(here)
    _fd, theirs = give(first, client, second)
    status, types, handles = import_several(second, other, theirs, [0])
    assert (status, types) == (OK, (1,))
    assert handles[0]
    assert free(second, other, handles[0]) == OK


def test_bad_exports_are_refused(here: World) -> None:
    first, client, _second, other = pair(here, cap_mib=2048)
    fd = first.open(CTL)
    assert first.alloc(client, DEVICE, 0x300, GROUP, group()).u32(0x28) == OK
    for handle, status in ((0x300, NOT_SUPPORTED), (DEVICE, NOT_SUPPORTED), (0x999, NOT_FOUND)):
        assert export(first, client, fd, handle) == status
    # The driver would export a group, and keep what it takes.
    assert ctypes.c_uint32.in_dll(here.lib, "on_card_exports").value == 0
    assert export(first, other, fd) == INVALID_CLIENT
    assert export(first, client, -1) == INVALID_PARAMETER
    assert export(first, client, first.open(CARD)) == INVALID_PARAMETER
    assert export(first, client, first.uvm) == INVALID_PARAMETER
    assert export(first, client, 0) == INVALID_PARAMETER
    assert export_several(first, client, fd, [HANDLE], places=0) == INVALID_PARAMETER
    assert export_several(first, client, fd, [HANDLE], places=513) == NO_MEMORY
    assert export_several(first, client, fd, [HANDLE], device=0) == INVALID_PARAMETER
    assert export_several(first, client, fd, [HANDLE], device=0xD1) == INVALID_PARAMETER
    assert import_(first, client, fd, OTHER) == INVALID_PARAMETER
    assert export(first, client, fd) == OK
    assert free(first, client) == OK
    close(first, fd)
    assert first.free(client, 0x300).u32(0xC) == OK
    until(lambda: here.used_mib(first) == 0, "the charge ends with the file")


def test_refused_export_is_not_accounted(here: World) -> None:
    first, client, second, other = pair(here)
    fd = first.open(CTL)
    here.refuses(control=EXPORT_SEVERAL)
    assert export(first, client, fd) == NOT_SUPPORTED
    assert free(first, client) == OK
    assert here.used_mib(first) == 0
    here.refuses()
    assert allocate(first, client) == OK
    another = first.open(CTL)
    assert export_several(first, client, another, [HANDLE]) == OK
    here.refuses(control=EXPORT_SEVERAL)
    assert export_several(first, client, another, [HANDLE], index=1) == NOT_SUPPORTED
    here.refuses()
    assert export_several(first, client, another, [0]) == OK
    assert free(first, client) == OK
    assert here.used_mib(first) == 0
    assert allocate(first, client) == OK
    assert export(first, client, fd) == OK
    here.refuses(control=EXPORT_SEVERAL)
    assert export_several(first, client, fd, [0]) == NOT_SUPPORTED
    here.refuses(control=IMPORT_SEVERAL)
    theirs = int(second.tell("take", first.pid, fd))
    assert import_(second, other, theirs) == NOT_SUPPORTED
    here.refuses()
    assert free(first, client) == OK
    assert here.used_mib(first) == 48
    assert import_(second, other, theirs) == OK


def test_import_that_fails_in_the_middle_ends_nothing_else(here: World) -> None:
    """RM frees what the call names at the places before, at those too where nothing was exported."""
    first, client, second, other = pair(here)
    fd = first.open(CTL)
    assert export_several(first, client, fd, [0, HANDLE, HANDLE]) == OK
    theirs = int(second.tell("take", first.pid, fd))
    assert allocate(second, other, HANDLE, 8 * MIB) == OK
    assert import_several(second, other, theirs, [HANDLE, OTHER, HANDLE])[0] == DUPLICATE
    assert here.used_mib(first) == 56
    assert free(second, other, OTHER) == OK
    assert free(second, other, HANDLE) == OK
    assert here.used_mib(first) == 48
    assert import_several(second, other, theirs, [0, OTHER, HANDLE])[0] == OK


def test_program_may_export_to_the_file_of_its_client(here: World) -> None:
    first, client, second, other = pair(here)
    assert export(first, client, first.ctl) == OK
    assert free(first, client) == OK
    theirs = int(second.tell("take", first.pid, first.ctl))
    assert import_(second, other, theirs) == OK
    assert free(second, other) == OK
    assert here.used_mib(first) == 48
    first.kill()
    close(second, theirs)
    until(lambda: here.used_mib(first) == 0, "the charge ends with the file")


def test_dup_by_export_place_is_refused(here: World) -> None:
    first, client, second, other = pair(here)
    give(first, client, second)
    assert {duplicate(second, other, 0, slot * 512) for slot in range(64)} == {NOT_PERMITTED}


def test_host_memory_is_exported_and_duplicated_for_nothing(here: World) -> None:
    first, client, second, other = pair(here)
    assert allocate(first, client, OTHER, 4096, MEMORY_SYSTEM) == OK
    fd = first.open(CTL)
    assert export_several(first, client, fd, [OTHER]) == OK
    theirs = int(second.tell("take", first.pid, fd))
    assert import_several(second, other, theirs, [0x201])[:2] == (OK, (2,))
    assert share(first, client, OTHER, FOR_ALL) == OK
    assert duplicate(second, other, client, OTHER, 0x202) == OK
    assert here.used_mib(first) == 48


def test_exports_survive_a_restart(here: World) -> None:
    first, client, second, other = pair(here)
    fd, theirs = give(first, client, second)
    assert import_(second, other, theirs) == OK
    assert share(first, client, HANDLE, FOR_ALL) == OK
    here.restart()
    assert here.used_mib(first) == 48
    assert duplicate(second, other, client) == OK
    assert free(second, other, OTHER) == OK
    assert free(first, client) == OK
    assert free(second, other) == OK
    assert here.used_mib(first) == 48
    assert import_(second, other, theirs) == OK
    here.restart()
    close(first, fd)
    close(second, theirs)
    assert here.used_mib(first) == 48
    assert free(second, other) == OK
    until(lambda: here.used_mib(first) == 0, "the charge ends with the file")


def test_file_that_the_next_engine_does_not_find_keeps_its_charge(here: World) -> None:
    first, client, second, other = pair(here)
    fd, theirs = give(first, client, second)
    assert free(first, client) == OK
    close(first, fd)
    assert second.tell("send", theirs) == "0"
    here.restart()
    assert here.used_mib(first) == 48
    assert allocate(second, other) == NO_MEMORY


def test_uvm_open_count_does_not_close_a_control_file(here: World) -> None:
    first, client, second, other = pair(here)
    fd, theirs = give(first, client, second)
    assert free(first, client) == OK
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


def test_audit_counts_every_name_and_finds_a_violation(here: World) -> None:
    first, client, second, other = pair(here)
    fd, theirs = give(first, client, second)
    assert import_(second, other, theirs) == OK
    second.client()
    assert free(first, client) == OK
    second.client()
    assert here.used_mib(first) == 48
    # The ledger has 48 MiB more than the driver counts to the process, which is no room for a cheat.
    assert free(second, other) == OK
    flip = alloc_struct(other, DEVICE, 0x600, MEMORY, 128)
    cheat = second.alloc(0, 0, 0, ROOT, memory(16 * MIB), flip=flip)
    assert cheat.through
    close(first, fd)
    assert second.control(other, other, 0x201, bytes(128)).result == -1
