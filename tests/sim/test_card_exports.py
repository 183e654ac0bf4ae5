"""Memory that is exported through open files: it is there until the last name and the last such file have
ended.
"""

import struct

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.cards import CardProcess
from tests.sim.card_protocol import (
    CARD,
    CONTROL,
    CONTROL_STRUCT,
    CTL,
    DUPLICATE,
    INVALID_ARGUMENT,
    INVALID_PARENT,
    NOT_FOUND,
    OK,
    Client,
    Connection,
    File,
    rm_cmd,
)
from tests.sim.conftest import NewClient
from tests.support import rm_numbers as nv
from tests.support.waiting import until

MIB = 1 << 20
INVALID_PARAMETER, OUT_OF_RANGE = nv.NV_ERR_INVALID_PARAMETER, nv.NV_ERR_OUT_OF_RANGE
IN_USE = nv.NV_ERR_STATE_IN_USE
EXPORT = nv.NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD
IMPORT = nv.NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD
INFO = nv.NV0000_CTRL_CMD_OS_UNIX_GET_EXPORT_OBJECT_INFO
CREATE = nv.NV0000_CTRL_CMD_OS_UNIX_CREATE_EXPORT_OBJECT_FD
EXPORT_SEVERAL = nv.NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD
IMPORT_SEVERAL = nv.NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD


def used(card: CardProcess) -> int:
    """Bytes taken of the card, counted both ways."""
    account = card.account().cards[0]
    assert sum(use.bytes for use in account.files) == account.used_bytes
    return account.used_bytes


def call(client: Client, command: int, params: bytes, file: int) -> tuple[int, bytes]:
    """(RM status, params)."""
    outer = CONTROL_STRUCT.pack(client.root, client.root, command, 0, 0, len(params), 0xDEAD)
    outer, after = client.connection.ioctl(
        client.file.id, rm_cmd(CONTROL, len(outer)), outer, params, aux=file
    )
    return int(CONTROL_STRUCT.unpack(outer)[6]), after


def export_one(client: Client, memory: int, file: int) -> int:
    return call(client, EXPORT, struct.pack("<IIIIiI", 1, client.device, 0, memory, 3, 0), file)[0]


def import_one(client: Client, file: int, handle: int = 0) -> tuple[int, int]:
    """(RM status, handle)."""
    status, after = call(client, IMPORT, struct.pack("<iIIII", 3, 1, 0, client.device, handle), file)
    return status, struct.unpack_from("<I", after, 16)[0]


def export_several(client: Client, handles: list[int], file: int, index: int = 0, places: int = 4) -> int:
    params = struct.pack("<iIH64s2x", 3, client.device, places, b"mine")
    params += struct.pack(f"<{len(handles)}I", *handles).ljust(2048, b"\0")
    return call(client, EXPORT_SEVERAL, params + struct.pack("<HH", len(handles), index), file)[0]


def import_several(client: Client, handles: list[int], file: int) -> tuple[int, bytes]:
    """(RM status, types)."""
    params = struct.pack("<iI", 3, client.device)
    params += struct.pack(f"<{len(handles)}I", *handles).ljust(512, b"\0") + bytes(128)
    status, after = call(client, IMPORT_SEVERAL, params + struct.pack("<HH", len(handles), 0), file)
    return status, after[520 : 520 + len(handles)]


def memory(client: Client) -> int:
    status, handle = client.memory(MIB)
    assert status == OK
    return handle


def test_export_outlives_its_creator(card: CardProcess, new_client: NewClient) -> None:
    owner, other = new_client(tgid=1), new_client(tgid=2)
    file = other.connection.open(CTL)
    assert export_one(owner, memory(owner), file.id) == OK
    owner.close()
    until(
        lambda: {use.file for use in card.account().cards[0].files} == {file.id}, "the maker's file is gone"
    )
    assert used(card) == MIB
    status, handle = import_one(other, file.id)
    assert status == OK
    file.close()
    until(lambda: {use.file for use in card.account().cards[0].files} == {other.file.id}, "the file is gone")
    assert used(card) == MIB
    assert other.free(handle) == OK
    assert used(card) == 0


def test_places(card: CardProcess, new_client: NewClient) -> None:
    owner, other = new_client(tgid=1), new_client(tgid=2)
    file = owner.connection.open(CTL)
    one, two, host = memory(owner), memory(owner), owner.system_memory(4096)[1]
    assert export_several(owner, [one, 0, host], file.id) == OK
    assert export_several(owner, [one, two], file.id, index=3) == OUT_OF_RANGE
    assert export_several(owner, [two, one + 99], file.id) == NOT_FOUND
    assert import_several(other, [0x11, 0x12, 0x13], file.id) == (OK, bytes((1, 0, 2)))
    assert import_several(other, [0x21, 0x22, 0x13], file.id)[0] == DUPLICATE
    assert [other.free(handle) for handle in (0x11, 0x12, 0x21)] == [OK, OK, OK]
    assert owner.free(one) == OK
    assert used(card) == 2 * MIB
    assert export_several(owner, [two], file.id) == OK
    assert used(card) == MIB
    status, info = call(other, INFO, bytes(80), file.id)
    assert (status, struct.unpack_from("<4xIIH4s", info)) == (OK, (0, 0xFFFFFFFF, 4, b"mine"))
    file.close()


def test_bad_exports_are_refused(new_client: NewClient) -> None:
    owner, elsewhere = new_client(), new_client(1)
    file, node = owner.connection.open(CTL), owner.connection.open(CARD)
    object_ = memory(owner)
    assert export_one(owner, object_, node.id) == INVALID_PARAMETER
    assert export_one(owner, owner.device, file.id) == INVALID_ARGUMENT
    assert import_one(owner, file.id)[0] == INVALID_PARAMETER
    assert call(owner, INFO, bytes(80), file.id)[0] == INVALID_PARAMETER
    assert export_one(owner, object_, file.id) == OK
    assert export_one(owner, object_, file.id) == IN_USE
    assert call(owner, CREATE, struct.pack("<IH66xi", owner.device, 1, 3), file.id)[0] == IN_USE
    assert import_one(elsewhere, file.id)[0] == INVALID_PARENT


steps = st.lists(
    st.tuples(
        st.sampled_from(["new", "export", "export", "import", "import", "free", "free", "file", "client"]),
        st.integers(0, 99),
        st.integers(0, 3),
    ),
    max_size=40,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=steps)
def test_exports_match_a_model(
    card: CardProcess, connection: Connection, steps: list[tuple[str, int, int]]
) -> None:
    """names: (client, handle) to the number of the memory it stands for; places: (file, place) to the
    same."""
    clients = [Client(connection, tgid=n + 1) for n in range(3)]
    files = [connection.open(CTL), connection.open(CTL)]
    names: dict[tuple[int, int], int] = {}
    places: dict[tuple[int, int], int] = {}
    made = 0

    def card_saw() -> bool:
        return gone not in _open(card)

    try:
        for what, pick, place in steps:
            index, at = pick % len(clients), pick % len(files)
            keys = list(names)
            if what == "new":
                names[index, memory(clients[index])] = made = made + 1
            elif what == "export" and keys:
                owner, handle = keys[pick % len(keys)]
                assert export_several(clients[owner], [handle], files[at].id, place) == OK
                places[at, place] = names[owner, handle]
            elif what == "import" and (at, 0) in places:
                status, handle = import_one(clients[index], files[at].id)
                assert status == OK
                names[index, handle] = places[at, 0]
            elif what == "free" and keys:
                owner, handle = key = keys[pick % len(keys)]
                assert clients[owner].free(handle) == OK
                del names[key]
            elif what in ("file", "client"):
                if what == "file":
                    gone, files[at] = files[at].id, _reopened(connection, files[at])
                    places = {key: value for key, value in places.items() if key[0] != at}
                else:
                    gone = clients[index].file.id
                    names = {key: value for key, value in names.items() if key[0] != index}
                    clients[index].close()
                    clients[index] = Client(connection, tgid=index + 1)
                until(card_saw, "it is gone", poll_s=0.002)
            assert used(card) == len({*names.values(), *places.values()}) * MIB
    finally:
        for client in clients:
            client.close()
        for file in files:
            file.close()
        until(lambda: used(card) == 0, "the card is empty", poll_s=0.002)


def _reopened(connection: Connection, file: File) -> File:
    file.close()
    return connection.open(CTL)


def _open(card: CardProcess) -> set[int]:
    return {use.file for use in card.account().cards[0].files}
