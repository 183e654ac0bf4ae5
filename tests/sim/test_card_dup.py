"""Memory that has several names: who may have one, and that it is there until the last of them ends."""

import os
import struct

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.cards import CardProcess
from tests.sim.card_dup import DUP_STRUCT, MIB, dup, memory
from tests.sim.card_protocol import (
    DUPLICATE,
    INVALID_ARGUMENT,
    INVALID_CLIENT,
    INVALID_HANDLE,
    INVALID_PARENT,
    NO_MEMORY,
    NOT_FOUND,
    OK,
    VASPACE,
    Client,
    Connection,
)
from tests.sim.conftest import NewClient
from tests.support.rm_numbers import (
    NV0000_CTRL_CMD_CLIENT_SET_INHERITED_SHARE_POLICY,
    NV_ERR_INSUFFICIENT_PERMISSIONS,
    RS_SHARE_ACTION_FLAG_COMPOSE,
)
from tests.support.rm_numbers import NV_ESC_RM_DUP_OBJECT as DUP_OBJECT
from tests.support.rm_numbers import NV_ESC_RM_SHARE as SHARE
from tests.support.waiting import until

DENIED = NV_ERR_INSUFFICIENT_PERMISSIONS
NONE_TYPE, ALL_TYPE, TOKEN_TYPE, CLIENT_TYPE, PID_TYPE = range(5)
DUP_RIGHT, REVOKE, COMPOSE, INHERITED_SHARE = (
    1,
    1,
    RS_SHARE_ACTION_FLAG_COMPOSE,
    NV0000_CTRL_CMD_CLIENT_SET_INHERITED_SHARE_POLICY,
)
SHARE_STRUCT = struct.Struct("<4IHBxI")


def used(card: CardProcess) -> int:
    """Bytes taken of the card, counted both ways."""
    account = card.account().cards[0]
    assert sum(use.bytes for use in account.files) == account.used_bytes
    return account.used_bytes


def share(owner: Client, memory: int, target: int, *, kind: int = CLIENT_TYPE, action: int = 0) -> int:
    outer = SHARE_STRUCT.pack(owner.root, memory, target, DUP_RIGHT, kind, action, 0xDEAD)
    return int(SHARE_STRUCT.unpack(owner.connection.escape(owner.file.id, SHARE, outer))[6])


def test_dup_is_allowed_to_the_owners_process_only(new_client: NewClient) -> None:
    owner, sibling, stranger = new_client(tgid=1), new_client(tgid=1), new_client(tgid=2)
    object_ = memory(owner)
    assert dup(sibling, owner, object_)[0] == OK
    assert dup(stranger, owner, object_)[0] == DENIED
    assert share(owner, object_, stranger.root, action=COMPOSE) == OK
    assert dup(stranger, owner, object_)[0] == OK
    assert dup(sibling, owner, object_)[0] == OK
    assert share(owner, object_, stranger.root, action=REVOKE | COMPOSE) == OK
    assert dup(stranger, owner, object_)[0] == DENIED
    assert share(stranger, object_ + 99, owner.root) == NOT_FOUND
    # Not composed: in place of what held before.
    for kind in (ALL_TYPE, TOKEN_TYPE):
        assert share(owner, object_, 0, kind=kind) == OK
        assert dup(stranger, owner, object_)[0] == OK
    assert share(owner, object_, stranger.root) == OK
    assert dup(sibling, owner, object_)[0] == DENIED
    assert share(owner, object_, 0, kind=NONE_TYPE) == OK
    assert dup(stranger, owner, object_)[0] == DENIED
    clients = [new_client(tgid=3).root for _ in range(5)]
    targets = [share(owner, object_, target, action=COMPOSE) for target in (*clients, 1)]
    assert targets == [OK] * 4 + [NO_MEMORY, INVALID_HANDLE]


def test_unshared_object_follows_its_clients_policy(new_client: NewClient) -> None:
    owner, stranger = new_client(tgid=1), new_client(tgid=2)
    object_, other = memory(owner), memory(owner)
    assert share(owner, other, 0, kind=PID_TYPE) == OK
    everybody = struct.pack("<IIHBx", 0, DUP_RIGHT, ALL_TYPE, COMPOSE)
    assert owner.control(INHERITED_SHARE, everybody, owner.root)[0] == OK
    assert dup(stranger, owner, object_)[0] == OK
    assert dup(stranger, owner, other)[0] == DENIED


def test_bad_dups_are_refused(new_client: NewClient) -> None:
    owner, other = new_client(), new_client()
    elsewhere = new_client(1)
    object_ = memory(owner)
    assert dup(other, owner, owner.device)[0] == INVALID_ARGUMENT
    assert dup(other, owner, owner.group())[0] == OK
    assert dup(other, owner, owner.made(owner.device, VASPACE, bytes(48)))[0] == OK
    assert dup(other, owner, object_ + 99)[0] == NOT_FOUND
    assert dup(other, owner, object_, parent=other.root)[0] == INVALID_PARENT
    assert dup(elsewhere, owner, object_)[0] == INVALID_PARENT
    status, handle = dup(other, owner, object_, handle=0x77)
    assert (status, handle) == (OK, 0x77)
    assert dup(other, owner, object_, handle=0x77)[0] == DUPLICATE
    outer = DUP_STRUCT.pack(owner.root, owner.device, 0, owner.root, object_, 0, 0xDEAD)
    through = other.connection.escape(other.file.id, DUP_OBJECT, outer)
    assert DUP_STRUCT.unpack(through)[6] == INVALID_CLIENT


def test_duplicate_outlives_the_file_of_its_origin(card: CardProcess, new_client: NewClient) -> None:
    owner, other = new_client(tgid=1), new_client(tgid=1)
    status, handle = dup(other, owner, memory(owner))
    assert status == OK
    assert used(card) == MIB
    owner.close()
    until(lambda: {use.file for use in card.account().cards[0].files} == {other.file.id}, "the file is gone")
    assert used(card) == MIB
    assert other.free(handle) == OK
    assert used(card) == 0


steps = st.lists(
    st.tuples(st.sampled_from(["new", "dup", "dup", "free", "free", "device"]), st.integers(0, 99)),
    max_size=40,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=steps)
def test_dups_match_a_model(card: CardProcess, connection: Connection, steps: list[tuple[str, int]]) -> None:
    """names: (client, handle) to the number of the memory it stands for."""
    clients = [Client(connection), Client(connection), Client(connection)]
    names: dict[tuple[int, int], int] = {}
    made = 0
    try:
        for what, pick in steps:
            index = pick % len(clients)
            client = clients[index]
            keys = list(names)
            if what == "new":
                names[index, memory(client)] = made = made + 1
            elif what == "dup" and keys:
                owner, handle = keys[pick % len(keys)]
                status, new = dup(client, clients[owner], handle)
                assert status == OK
                names[index, new] = names[owner, handle]
            elif what == "free" and keys:
                owner, handle = key = keys[pick % len(keys)]
                assert clients[owner].free(handle) == OK
                del names[key]
            elif what == "device":
                assert client.free(client.device) == OK
                names = {key: value for key, value in names.items() if key[0] != index}
                clients[index].close()
                clients[index] = Client(connection)
            assert used(card) == len(set(names.values())) * MIB
    finally:
        for client in clients:
            client.close()
        until(lambda: used(card) == 0, "the card is empty", poll_s=0.002)
    assert os.path.exists(card.admin_socket)
