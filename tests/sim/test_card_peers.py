"""Two simulated cards of a kind: one reaches the other's memory where nvidia-uvm has made them peers, and no
longer than that.
"""

import copy
import os
import struct
from collections.abc import Callable, Iterator

import pytest

from sim.cards import Card, CardProcess, cards, running
from tests.sim.card_protocol import (
    DEVICE,
    INVALID_DEVICE,
    NOT_SUPPORTED,
    OK,
    SUBDEVICE,
    Client,
    Connection,
    device_params,
)
from tests.sim.card_space import COPY, COPY_CLASS, MIB, HardwareChannel, Space, Uvm, method, uuid_of, wait
from tests.support import rm_numbers as nv
from tests.support.waiting import until

HERE, THERE, RING, DONE = 0x20_0000_0000, 0x30_0000_0000, 0x10_0000_0000, 0x40_0000_0000
PITCH, NON_PIPELINED, ONE_WORD = 3 << 7, 2, 1 << 3
OTHER_KIND = 2


@pytest.fixture
def card(tmp_path_factory: pytest.TempPathFactory, sanitized_simcard: str) -> Iterator[CardProcess]:
    """Two A10 and an L4."""
    directory = tmp_path_factory.mktemp("card")
    with running(directory, "a10:2,l4", rm_call_us=0, program=sanitized_simcard) as process:
        yield process
    assert process.process.returncode == 0


def on_card(client: Client, card: int) -> Client:
    """The same client with a device of that card."""
    other = copy.copy(client)
    other.card = card
    other.device = client.made(client.root, DEVICE, device_params(card))
    other.subdevice = client.made(other.device, SUBDEVICE, bytes(4))
    return other


class Pair:
    """Two cards' address spaces on one file, and memory of each card in its own."""

    def __init__(self, card: CardProcess, connection: Connection) -> None:
        self._card = card
        self.client = Client(connection, 0)
        self.one = Space(self.client)
        self.other = Space(on_card(self.client, 1), self.one.uvm)
        self.uvm = self.one.uvm
        self.ours, self.here = self.one.put(HERE)
        self.theirs, self.there = self.other.put(THERE)

    def enable(self) -> int:
        return self.uvm.enable_peers(self.one.uuid, self.other.uuid)

    def map(self) -> int:
        """The other card's memory, on the first."""
        return self.uvm.map(self.one.uuid, THERE, MIB, self.theirs)

    def listed(self) -> list[Card]:
        return cards(self._card.admin_socket)

    def used(self) -> list[int]:
        return [one.used_bytes for one in self._card.account().cards[:2]]


@pytest.fixture
def pair(card: CardProcess) -> Iterator[Pair]:
    with Connection(card.card_socket) as connection:
        yield Pair(card, connection)


def test_peers_are_two_registered_cards_of_a_kind(pair: Pair) -> None:
    third = uuid_of(on_card(pair.client, OTHER_KIND))
    assert pair.uvm.enable_peers(pair.one.uuid, pair.one.uuid) == INVALID_DEVICE
    assert pair.uvm.enable_peers(pair.one.uuid, third) == INVALID_DEVICE
    assert pair.uvm.register_gpu(third) == OK
    assert pair.uvm.enable_peers(pair.one.uuid, third) == NOT_SUPPORTED
    assert pair.uvm.disable_peers(pair.one.uuid, pair.other.uuid) == INVALID_DEVICE
    assert pair.enable() == OK
    assert pair.enable() == INVALID_DEVICE
    assert Uvm(pair.client).uvm_initialize() == OK  # of which nothing is said
    assert pair.uvm.disable_peers(pair.other.uuid, pair.one.uuid) == OK
    assert pair.uvm.disable_peers(pair.other.uuid, pair.one.uuid) == INVALID_DEVICE


def copy_to(pair: Pair, channel: HardwareChannel, to: int, from_: int, done: int) -> None:
    _, flag = pair.one.put(done)
    ends = from_ >> 32, from_ & 0xFFFFFFFF, to >> 32, to & 0xFFFFFFFF
    channel.submit(
        method(COPY, 0, COPY_CLASS),
        method(COPY, 0x240, done >> 32, done & 0xFFFFFFFF, 1),
        method(COPY, 0x400, *ends) + method(COPY, 0x418, MIB),
        method(COPY, 0x300, NON_PIPELINED | PITCH | ONE_WORD),
    )
    wait(flag, 0, 1)


def test_copy_engine_reads_and_writes_the_peer(pair: Pair) -> None:
    channel = HardwareChannel(pair.one, RING)
    assert pair.map() == INVALID_DEVICE
    assert pair.enable() == OK
    assert pair.map() == OK
    content = os.urandom(MIB)
    pair.here[:] = content
    copy_to(pair, channel, THERE, HERE, DONE)
    assert pair.there[:] == content
    pair.there[:] = content[::-1]
    copy_to(pair, channel, HERE, THERE, DONE + MIB)
    assert pair.here[:] == content[::-1]


# ctrl0000system.h: reads and writes by mailboxes, over the bus.
OVER_BUS = 0x47


def peer_params(one: int, other: int, *ids: int) -> bytes:
    return struct.pack("<4I", one, other, *(ids or (0, 0))).ljust(72, b"\0")


def test_rm_says_which_cards_are_peers(pair: Pair) -> None:
    ids = [card.gpu_id for card in pair.listed()]
    for named, expected in ((ids[:2], OVER_BUS), (ids[1:], 0), (ids[:1] * 2, 0), (ids[:1], 0), (ids, 0)):
        params = struct.pack(f"<{len(named)}I", *named).ljust(128, b"\0") + struct.pack("<I", len(named))
        status, answer = pair.client.control(
            nv.NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS_V2, params.ljust(8348, b"\0"), pair.client.root
        )
        assert (status, struct.unpack_from("<I", answer, 0x84)[0]) == (OK, expected)


@pytest.mark.parametrize("ends", [0, 1])
def test_peers_of_rm_end_with_either_subdevice(pair: Pair, ends: int) -> None:
    subdevices = pair.client.subdevice, pair.other.client.subdevice
    third = on_card(pair.client, OTHER_KIND).subdevice
    for params, expected in (
        (peer_params(*subdevices), OK),
        (peer_params(*subdevices, 3, 0), nv.NV_ERR_INVALID_ARGUMENT),
        (peer_params(subdevices[0], pair.client.device), nv.NV_ERR_INVALID_ARGUMENT),
        (peer_params(subdevices[0], third), NOT_SUPPORTED),
    ):
        assert pair.client.alloc(pair.client.root, nv.NV50_P2P, params)[0] == expected
    made = pair.client.made(pair.client.root, nv.NV50_P2P, peer_params(*subdevices))
    assert pair.client.free(subdevices[ends]) == OK
    # It has ended, and its name is taken until that is freed.
    left = subdevices[1 - ends]
    again = peer_params(left, left)
    assert (
        pair.client.alloc(pair.client.root, nv.NV50_P2P, again, made)[0] == nv.NV_ERR_INSERT_DUPLICATE_NAME
    )
    assert pair.client.free(made) == OK
    assert pair.client.alloc(pair.client.root, nv.NV50_P2P, again, made)[0] == NOT_SUPPORTED


def closed(pair: Pair) -> int:
    pair.uvm.close()
    return OK


ENDS: dict[str, Callable[[Pair], int]] = {
    "unmapped": lambda pair: pair.uvm.unmap(pair.one.uuid, THERE, MIB),
    "no peers": lambda pair: pair.uvm.disable_peers(pair.one.uuid, pair.other.uuid),
    "owner unregistered": lambda pair: pair.uvm.unregister_gpu(pair.other.uuid),
    "reader unregistered": lambda pair: pair.uvm.unregister_gpu(pair.one.uuid),
    "range freed": lambda pair: pair.uvm.free(THERE, MIB),
    "file closed": closed,
}


@pytest.mark.parametrize("how", ENDS)
def test_memory_stays_on_its_card_until_no_peer_maps_it(pair: Pair, how: str) -> None:
    taken = pair.used()
    assert pair.enable() == OK
    assert pair.map() == OK
    assert pair.used() == taken
    assert pair.uvm.unmap(pair.other.uuid, THERE, MIB) == OK
    assert pair.client.free(pair.theirs) == OK
    assert pair.used() == taken
    assert ENDS[how](pair) == OK
    until(lambda: pair.used() == [taken[0], taken[1] - MIB], "nothing holds it")
