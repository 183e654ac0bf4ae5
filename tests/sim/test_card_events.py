"""Events on the simulated card: where libcuda makes them, and what an event needs."""

import struct
from collections.abc import Iterator

import pytest

from sim.cards import CardProcess
from tests.sim.card_protocol import (
    CARD,
    INVALID_CLIENT,
    MEMORY,
    NOT_FOUND,
    OK,
    REGISTER_FD,
    Client,
    Connection,
    File,
    memory_params,
)
from tests.support import rm_numbers as nv

ALLOC_OS_EVENT, FREE_OS_EVENT = nv.NV_ESC_ALLOC_OS_EVENT, nv.NV_ESC_FREE_OS_EVENT
EVENT, EVENT_OS = nv.NV01_EVENT, nv.NV01_EVENT_OS_EVENT
TAKEN, INVALID_EVENT = nv.NV_ERR_INSUFFICIENT_RESOURCES, nv.NV_ERR_INVALID_EVENT
INVALID_OBJECT = nv.NV_ERR_INVALID_OBJECT
FD = 27


@pytest.fixture
def connection(card: CardProcess) -> Iterator[Connection]:
    with Connection(card.card_socket) as made:
        yield made


@pytest.fixture
def client(connection: Connection) -> Iterator[Client]:
    made = Client(connection)
    yield made
    made.close()


@pytest.fixture
def node(connection: Connection, client: Client) -> File:
    """A card's file, registered with the client's."""
    file = connection.open(CARD)
    connection.escape(file.id, REGISTER_FD, bytes(4), aux=client.file.id)
    return file


def os_event(connection: Connection, file: int, client: int, number: int = ALLOC_OS_EVENT) -> int:
    answer = connection.escape(file, number, struct.pack("4I", client, 0, FD, 99))
    return int.from_bytes(answer[12:], "little")


def event(client: Client, file: int, *, source: int = 0, fd: int = FD, class_id: int = EVENT_OS) -> int:
    params = struct.pack("4IQ", client.root, source or client.subdevice, class_id, 0, fd)
    return client.connection.alloc(file, client.root, client.subdevice, 0, class_id, params)[0]


def test_event_is_made_on_a_cards_file_and_on_the_control_file(
    connection: Connection, client: Client, node: File
) -> None:
    assert event(client, node.id) == NOT_FOUND
    assert os_event(connection, node.id, client.root) == OK
    assert os_event(connection, node.id, client.root) == TAKEN
    assert [event(client, file) for file in (node.id, client.file.id)] == [OK, OK]
    assert event(client, node.id, fd=FD + 1) == NOT_FOUND
    # What tells it may not be there yet; a device tells of nothing.
    assert event(client, node.id, source=0xBAD) == OK
    assert event(client, node.id, source=client.device) == INVALID_OBJECT
    assert event(client, node.id, class_id=EVENT) == OK


def test_card_file_refuses_classes_other_than_events(
    connection: Connection, client: Client, node: File
) -> None:
    with pytest.raises(OSError, match="Invalid argument"):
        connection.alloc(node.id, client.root, client.device, 0, MEMORY, memory_params(1 << 20))


def test_cards_file_that_is_not_registered_has_no_clients(connection: Connection, client: Client) -> None:
    stray = connection.open(CARD)
    assert os_event(connection, stray.id, client.root) == OK
    assert event(client, stray.id) == INVALID_CLIENT


def test_events_end_with_their_file(connection: Connection, client: Client, node: File) -> None:
    assert os_event(connection, client.file.id, client.root, FREE_OS_EVENT) == INVALID_EVENT
    assert os_event(connection, node.id, client.root) == OK
    assert os_event(connection, client.file.id, client.root, FREE_OS_EVENT) == OK
    assert os_event(connection, node.id, client.root) == OK
    node.close()
    other = connection.open(CARD)
    for _ in range(1000):
        if os_event(connection, other.id, client.root) == OK:
            return
    raise AssertionError("it is still known")
