"""RM objects of the simulated card: who may use them, what they cost, what ends them."""

import os
import struct
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.cards import CardProcess
from tests.sim.card_protocol import (
    CHANNEL_AMPERE,
    CHANNEL_GROUP,
    CHANNEL_VOLTA,
    DEVICE,
    DUPLICATE,
    EVENT,
    EVENT_FILE_GONE,
    EVENT_SUBSCRIBED,
    INSUFFICIENT_RESOURCES,
    INVALID_ARGUMENT,
    INVALID_CLASS,
    INVALID_CLIENT,
    INVALID_HANDLE,
    INVALID_OWNER,
    INVALID_PARENT,
    MEMORY,
    NO_MEMORY,
    NOT_FOUND,
    OK,
    REQUEST,
    ROOT_CLIENT,
    SUBDEVICE,
    SUBSCRIBE,
    SYSTEM_MEMORY,
    VASPACE,
    Client,
    Connection,
    device_params,
    group_params,
    heap_bytes,
    memory_params,
)
from tests.support.waiting import until

KIB, MIB = 1 << 10, 1 << 20
V100_BYTES = 16160 * MIB

NewClient = Callable[..., Client]


def used(card: CardProcess, index: int = 0) -> int:
    """Bytes taken of a card, counted both ways."""
    account = card.account().cards[index]
    assert sum(use.bytes for use in account.files) == account.used_bytes
    return account.used_bytes


def wait_until_used(card: CardProcess, expected: int) -> None:
    until(lambda: used(card) == expected, f"{expected} bytes are taken", poll_s=0.005)


@pytest.fixture(autouse=True)
def nothing_left(card: CardProcess) -> None:
    wait_until_used(card, 0)


@pytest.mark.parametrize(
    ("asked", "taken"), [(1, 64 * KIB), (64 * KIB, 64 * KIB), (64 * KIB + 1, 128 * KIB), (3 * MIB, 4 * MIB)]
)
def test_allocation_is_rounded_up_to_its_pages(
    card: CardProcess, new_client: NewClient, asked: int, taken: int
) -> None:
    client = new_client()
    before = used(card)
    status, handle = client.memory(asked)
    assert status == OK
    assert used(card) - before == taken
    assert client.free(handle) == OK
    assert used(card) == before


def test_card_gives_its_last_byte_and_not_one_more(card: CardProcess, new_client: NewClient) -> None:
    client = new_client()
    assert client.memory(V100_BYTES + 1)[0] == NO_MEMORY
    assert client.memory((1 << 64) - 1)[0] == INVALID_ARGUMENT
    status, handle = client.memory(V100_BYTES)
    assert status == OK
    assert client.memory(1)[0] == NO_MEMORY
    assert client.alloc(client.device, CHANNEL_GROUP, group_params())[0] == NO_MEMORY
    assert client.free(handle) == OK
    assert used(card) == 0
    assert client.memory(1)[0] == OK


def test_returned_size_is_what_was_taken(connection: Connection, new_client: NewClient) -> None:
    client = new_client()
    status, _, params = connection.alloc(
        client.file.id, client.root, client.device, 0, MEMORY, memory_params(MIB + 1)
    )
    assert status == OK
    assert int.from_bytes(params[0x40:0x48], "little") == MIB + 64 * KIB
    assert int.from_bytes(params[0x58:0x60], "little") == MIB + 64 * KIB - 1


def test_optional_parameters_may_be_left_out(card: CardProcess) -> None:
    """A subdevice's are RS_OPTIONAL in resource_list.h; a device and memory have some."""
    with Connection(card.card_socket) as connection:
        file = connection.open(0)
        _, root, _ = connection.alloc(file.id, 0, 0, 0, ROOT_CLIENT, b"")
        assert connection.alloc(file.id, root, root, 0, DEVICE, b"")[0] == INVALID_ARGUMENT
        status, device, _ = connection.alloc(file.id, root, root, 0, DEVICE, bytes(56))
        assert status == OK
        assert connection.alloc(file.id, root, device, 0, SUBDEVICE, b"")[0] == OK
        assert connection.alloc(file.id, root, device, 0, MEMORY, b"")[0] == INVALID_ARGUMENT


@pytest.mark.parametrize(
    "params",
    [memory_params(MIB, attr=1 << 25), memory_params(MIB, flags=0x80000), memory_params(0)],
    ids=["system memory", "virtual", "size 0"],
)
def test_class_0x40_is_video_memory_only(card: CardProcess, new_client: NewClient, params: bytes) -> None:
    client = new_client()
    assert client.alloc(client.device, MEMORY, params)[0] == INVALID_ARGUMENT
    assert used(card) == 0


@pytest.mark.parametrize("owner", [0, 0xFFFFFFFF, 0xDEAF0000, 0xDEAF0009])
@pytest.mark.parametrize("attr", [0, 1 << 25], ids=["the card's", "the host's"])
def test_memory_is_asked_for_with_an_owner_that_is_not_rms(
    card: CardProcess, new_client: NewClient, owner: int, attr: int
) -> None:
    """stdmemValidateParams in standard_mem.c; the laboratory saw 0 refused (memory.memory_has_an_owner)."""
    client = new_client()
    class_id = SYSTEM_MEMORY if attr else MEMORY
    assert (
        client.alloc(client.device, class_id, memory_params(MIB, attr=attr, owner=owner))[0] == INVALID_OWNER
    )
    assert used(card) == 0
    assert client.alloc(client.device, class_id, memory_params(MIB, attr=attr, owner=0xDEAF000A))[0] == OK


def test_host_memory_says_that_it_is_the_hosts(new_client: NewClient) -> None:
    client = new_client()
    assert client.alloc(client.device, SYSTEM_MEMORY, memory_params(MIB))[0] == INVALID_ARGUMENT


def test_channel_group_takes_the_context_bytes(card: CardProcess, new_client: NewClient) -> None:
    client = new_client()
    group = client.group()
    assert used(card) == card.cards()[0].context_bytes
    assert client.alloc(group, CHANNEL_VOLTA, bytes(368))[0] == OK
    assert client.alloc(group, CHANNEL_AMPERE, bytes(368))[0] == INVALID_CLASS
    assert client.free(group) == OK
    assert used(card) == 0


@pytest.mark.parametrize("ancestor", ["root", "device"])
def test_freeing_an_ancestor_frees_all_below(
    card: CardProcess, new_client: NewClient, ancestor: str
) -> None:
    client = new_client()
    group = client.group()
    client.made(group, CHANNEL_VOLTA)
    client.made(client.device, VASPACE, bytes(48))
    memory = client.memory(MIB)[1]
    assert client.free(getattr(client, ancestor)) == OK
    assert used(card) == 0
    assert client.free(memory) == (INVALID_HANDLE if ancestor == "root" else OK)


@pytest.mark.parametrize(("flags", "status"), [(0x40, INVALID_ARGUMENT), (0x48, OK)])
def test_address_space_may_fault_where_nvidia_uvm_fills_it(
    new_client: NewClient, flags: int, status: int
) -> None:
    """tinygrad has it so."""
    client = new_client()
    params = struct.pack("<2I40x", 0, flags)
    assert client.alloc(client.device, VASPACE, params)[0] == status


def test_client_answers_only_on_its_own_file(
    card: CardProcess, connection: Connection, new_client: NewClient
) -> None:
    client, other = new_client(), new_client()
    memory = client.memory(MIB)[1]
    params = memory_params(MIB)
    assert connection.free(other.file.id, client.root, memory) == INVALID_CLIENT
    assert (
        connection.alloc(other.file.id, client.root, client.device, 0, MEMORY, params)[0] == INVALID_CLIENT
    )
    assert (
        connection.control(other.file.id, client.root, client.root, 0x201, bytes(128))[0] == INVALID_CLIENT
    )
    assert used(card) == MIB


def test_handles(new_client: NewClient, connection: Connection) -> None:
    client, other = new_client(), new_client()
    params = memory_params(MIB)
    assert client.alloc(client.device, MEMORY, params, handle=0x1234) == (OK, 0x1234)
    assert client.alloc(client.device, MEMORY, params, handle=0x1234)[0] == DUPLICATE
    assert other.alloc(other.device, MEMORY, params, handle=0x1234) == (OK, 0x1234)
    status, root, _ = connection.alloc(other.file.id, 0, 0, client.root, ROOT_CLIENT)
    assert status == OK
    assert root not in {0, client.root, other.root}
    chosen = {client.memory(MIB)[1] for _ in range(10)}
    assert len(chosen) == 10
    assert 0 not in chosen


def test_refused_allocations_leave_nothing(card: CardProcess, new_client: NewClient) -> None:
    client = new_client()
    refused = [
        (client.root, DEVICE, device_params(3), INVALID_CLASS),
        (client.root, DEVICE, device_params(0), INSUFFICIENT_RESOURCES),
        (client.device, SUBDEVICE, bytes(4), INSUFFICIENT_RESOURCES),
        (client.root, MEMORY, memory_params(MIB), INVALID_PARENT),
        (client.device, 0x4242, b"", INVALID_CLASS),
        (0x999, MEMORY, memory_params(MIB), NOT_FOUND),
        (client.device, SUBDEVICE, bytes([0xFF] * 4), INVALID_CLASS),
        (client.device, CHANNEL_GROUP, bytes(19), INVALID_ARGUMENT),
    ]
    for parent, class_id, params, status in refused:
        assert client.alloc(parent, class_id, params, handle=0x77)[0] == status
        assert client.free(0x77) == OK
    assert used(card) == 0


def test_hang_up_frees_and_is_told(card: CardProcess, new_client: NewClient) -> None:
    with Connection(card.card_socket) as events:
        events.socket.send(REQUEST.pack(SUBSCRIBE, 0, 0, 0, 0, 0, 0, 0, 0, 0))
        assert EVENT.unpack(events.socket.recv(64)) == (EVENT_SUBSCRIBED, 0, 0)
        client = new_client()
        client.group()
        assert os.fstat(client.file.fd).st_ino == client.file.ino
        copy = os.dup(client.file.fd)
        client.close()
        assert client.memory(MIB)[0] == OK
        os.close(copy)
        assert EVENT.unpack(events.socket.recv(64)) == (EVENT_FILE_GONE, 0, client.file.id)
        assert used(card) == 0
        with pytest.raises(OSError, match="Bad file descriptor"):
            client.memory(MIB)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_account_equals_a_model(data: st.DataObject, card: CardProcess, connection: Connection) -> None:
    """Any order of allocations and frees over three files: the ledger is the sum of what lives."""
    clients = [Client(connection, tgid=100 + i) for i in range(3)]
    try:
        _run_model(data, card, clients)
    finally:
        for client in clients:
            client.close()
        wait_until_used(card, 0)


def _run_model(data: st.DataObject, card: CardProcess, clients: list[Client]) -> None:
    live: list[dict[int, int]] = [{} for _ in clients]
    for _ in range(data.draw(st.integers(1, 40))):
        who = data.draw(st.integers(0, 2))
        what = data.draw(st.sampled_from(["allocate", "free oldest", "free newest"]))
        if live[who] and what != "allocate":
            handle = min(live[who]) if what == "free oldest" else max(live[who])
            assert clients[who].free(handle) == OK
            del live[who][handle]
        else:
            size = data.draw(st.integers(1, 6000 * MIB))
            taken = heap_bytes(size)
            total = sum(sum(sizes.values()) for sizes in live)
            status, handle = clients[who].memory(size)
            assert status == (OK if total + taken <= V100_BYTES else NO_MEMORY)
            if status == OK:
                live[who][handle] = taken
        held = {use.tgid: use.bytes for use in card.account().cards[0].files}
        assert held == {100 + i: sum(sizes.values()) for i, sizes in enumerate(live) if sizes}
