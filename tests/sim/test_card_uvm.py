"""nvidia-uvm on the simulated card: what a file takes, in which order, and what it holds."""

from __future__ import annotations

import struct

import pytest

from sim.cards import CardProcess
from tests.sim.card_protocol import INVALID_DEVICE, INVALID_HANDLE, NOT_SUPPORTED, OK, VASPACE, Client
from tests.sim.card_space import MIB, HardwareChannel, Space, Uvm, uuid_of
from tests.sim.conftest import A10, NewClient
from tests.support.waiting import until

pytestmark = pytest.mark.sim
ILLEGAL, INVALID_ADDRESS, INVALID_CHANNEL, DENIED, WRONG_FLAGS = 0x16, 0x1E, 0x21, 0x1B, 0x1F
BASE = 0x10_0000_0000


def used(card: CardProcess) -> int:
    account = card.account().cards[A10]
    assert sum(use.bytes for use in account.files) == account.used_bytes
    return account.used_bytes


def test_a_file_is_initialised_first(client: Client) -> None:
    uvm, uuid = Uvm(client), uuid_of(client)
    assert uvm.unmap(uuid, 0, 0) == ILLEGAL
    assert uvm.register_gpu(uuid) == ILLEGAL
    assert uvm.initialize(1) == OK
    assert uvm.initialize(1) == OK
    assert uvm.initialize(0) == WRONG_FLAGS
    assert uvm.unmap(uuid, 0, 0) == INVALID_ADDRESS
    assert uvm.register_gpu(bytes(16)) == INVALID_DEVICE
    assert uvm.register_gpu(uuid) == OK
    uvm.close()


def test_an_address_space_is_on_one_file(client: Client, new_client: NewClient) -> None:
    one, other, uuid = Uvm(client), Uvm(client), uuid_of(client)
    space = client.made(client.device, VASPACE)
    for uvm in (one, other):
        assert uvm.initialize() == OK
        assert uvm.register_space(uuid, space) == INVALID_DEVICE
        assert uvm.register_gpu(uuid) == OK
    assert one.register_space(uuid, client.device) == INVALID_HANDLE
    assert one.register_space(uuid, space) == OK
    assert one.register_space(uuid, space) == INVALID_DEVICE
    assert other.register_space(uuid, space) == NOT_SUPPORTED
    one.close()
    until(lambda: other.register_space(uuid, space) == OK, "the first file has let go of it")
    stranger = Uvm(new_client(A10, tgid=2))
    assert stranger.initialize() == OK
    assert stranger.register_gpu(uuid) == OK
    stranger.client.root = client.root
    assert stranger.register_space(uuid, space) == DENIED
    other.close()
    stranger.close()


def test_mapped_memory_stays_until_it_is_unmapped(card: CardProcess, client: Client, space: Space) -> None:
    empty = used(card)
    ends = (
        lambda: space.uvm.unmap(space.uuid, BASE, MIB) or space.uvm.free(BASE, MIB),
        lambda: space.uvm.free(BASE, MIB),
        space.uvm.close,
    )
    for end in ends:
        handle, _ = space.put(BASE)
        assert used(card) == empty + MIB
        assert client.free(handle) == OK
        assert used(card) == empty + MIB
        assert not end()
        until(lambda: used(card) == empty, "nothing holds it any more")


def test_a_registered_channels_group_stays(card: CardProcess, client: Client, space: Space) -> None:
    empty = used(card)
    channel = HardwareChannel(space, BASE)
    context = used(card) - empty - MIB
    assert context > 100 * MIB
    assert space.uvm.register_channel(space.uuid, channel.group) == INVALID_CHANNEL
    assert space.uvm.register_channel(space.uuid, channel.handle) == OK
    assert client.free(channel.group) == OK
    assert used(card) - empty == context + MIB
    assert space.uvm.unregister_channel(channel.handle) == OK
    assert space.uvm.unregister_channel(channel.handle) == INVALID_CHANNEL
    assert used(card) - empty == MIB


def test_what_cannot_be_mapped(client: Client, space: Space, new_client: NewClient) -> None:
    _, memory = client.memory(MIB)
    uvm, uuid = space.uvm, space.uuid
    assert uvm.map(uuid, BASE, MIB, memory) == INVALID_ADDRESS
    assert uvm.create(BASE, MIB) == OK
    assert uvm.create(BASE + 4096, 4096) == INVALID_ADDRESS
    assert uvm.create(BASE + 2 * MIB, 0) == INVALID_ADDRESS
    assert uvm.map(bytes(16), BASE, MIB, memory) == INVALID_DEVICE
    assert uvm.map(uuid, BASE, 2 * MIB, memory) == INVALID_ADDRESS
    assert uvm.map(uuid, BASE, MIB, client.device) == INVALID_HANDLE
    assert uvm.map(uuid, BASE, MIB, memory, offset=4096) == 0x1F
    elsewhere = new_client(0)
    client.root, mine = elsewhere.root, client.root
    assert uvm.map(uuid, BASE, MIB, elsewhere.memory(MIB)[1]) == INVALID_DEVICE
    client.root = mine
    assert uvm.map(uuid, BASE, MIB, memory) == OK
    assert uvm.free(BASE, 4096) == INVALID_ADDRESS


@pytest.mark.parametrize("cmd", [1, 51, 0x7FFF])
def test_other_commands_are_none(client: Client, cmd: int) -> None:
    uvm = Uvm(client)
    with pytest.raises(OSError, match="Invalid argument"):
        client.connection.ioctl(uvm.file.id, cmd, struct.pack("<6Q", *[0] * 6))
    uvm.close()
