"""What the card's memory holds: the same bytes for whoever maps it, and nothing of the host's that nobody
wrote.
"""

import mmap
import os
from pathlib import Path

from sim.cards import CardProcess, running
from tests.sim.card_dup import dup
from tests.sim.card_protocol import INVALID_ARGUMENT, NOT_SUPPORTED, OK, Client, Connection
from tests.sim.conftest import NewClient
from tests.support.rm_numbers import NV_ERR_INVALID_BASE, NV_ERR_INVALID_LIMIT

MIB, GIB = 1 << 20, 1 << 30


def mapped(client: Client, memory: int, length: int = MIB) -> mmap.mmap:
    status, fd, at = client.map(memory, length=length)
    assert status == OK
    assert fd is not None
    try:
        return mmap.mmap(fd, length, offset=at)
    finally:
        os.close(fd)


def memory(client: Client, size: int = MIB) -> int:
    status, handle = client.memory(size)
    assert status == OK
    return handle


def resident_kib(card: CardProcess) -> int:
    status = Path(f"/proc/{card.process.pid}/status").read_text()
    return sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("Rss"))


def test_mappings_of_one_memory_share_its_bytes(new_client: NewClient) -> None:
    owner, sibling = new_client(tgid=1), new_client(tgid=1)
    handle = memory(owner)
    status, name = dup(sibling, owner, handle)
    assert status == OK
    with mapped(owner, handle) as one, mapped(owner, handle) as two, mapped(sibling, name) as three:
        assert one[:] == bytes(MIB)
        one[:4] = b"seen"
        three[-4:] = b"also"
        assert two[:4] == three[:4] == b"seen"
        assert one[-4:] == two[-4:] == b"also"


def test_early_duplicate_names_the_same_memory(new_client: NewClient) -> None:
    owner, sibling = new_client(tgid=1), new_client(tgid=1)
    handle = memory(owner)
    _, name = dup(sibling, owner, handle)
    assert owner.free(handle) == OK
    _, again = dup(owner, sibling, name)
    with mapped(sibling, name) as one, mapped(owner, again) as two:
        one[:4] = b"kept"
        assert two[:4] == b"kept"


def test_new_memory_is_zeros(new_client: NewClient) -> None:
    client = new_client()
    first = memory(client)
    with mapped(client, first) as page:
        page[:] = b"x" * MIB
    assert client.free(first) == OK
    with mapped(client, memory(client)) as page:
        assert page[:] == bytes(MIB)


def test_bounds_of_a_mapping(new_client: NewClient) -> None:
    client = new_client()
    handle = memory(client)
    assert client.map(handle, offset=1)[0] == INVALID_ARGUMENT
    assert client.map(handle, offset=MIB)[0] == NV_ERR_INVALID_BASE
    for how in ({"length": 0}, {"length": MIB + 1}, {"offset": 4096, "length": MIB}):
        assert client.map(handle, **how)[0] == NV_ERR_INVALID_LIMIT


def test_full_card_costs_the_host_nothing(card: CardProcess, new_client: NewClient) -> None:
    """What is taken is counted by the card's account; what is written is of the host's."""
    client, before = new_client(), resident_kib(card)
    held = memory(client, 15 * GIB)
    used = card.account().cards[0].used_bytes
    assert used == 15 * GIB
    with mapped(client, held, 15 * GIB) as all_of_it:
        all_of_it[14 * GIB : 14 * GIB + 4] = b"high"
        assert all_of_it[0] == 0
        assert card.account().cards[0].used_bytes == used
        assert resident_kib(card) - before < 64 << 10


def test_mapping_is_unsupported_without_data(tmp_path: Path) -> None:
    with running(tmp_path, "v100-16", options=["--data", "off"]) as card:
        with Connection(card.card_socket) as connection:
            client = Client(connection)
            assert client.map(memory(client))[0] == NOT_SUPPORTED
            client.close()
