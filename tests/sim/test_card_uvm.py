"""nvidia-uvm on the simulated card: what a file takes, in which order, and what it holds."""

import struct

import pytest

from sim.cards import CardProcess
from tests.sim.card_protocol import (
    CHANNEL_AMPERE,
    COPY_ENGINE,
    GRAPHICS_ENGINE,
    INVALID_DEVICE,
    INVALID_HANDLE,
    OK,
    TSG_SCHEDULE,
    VASPACE,
    Client,
    channel_params,
)
from tests.sim.card_space import CONTEXT_SHARE, MIB, HardwareChannel, Space, Uvm, uuid_of
from tests.sim.conftest import A10, NewClient
from tests.support import rm_numbers as nv
from tests.support.waiting import until

ILLEGAL, INVALID_ADDRESS = nv.NV_ERR_ILLEGAL_ACTION, nv.NV_ERR_INVALID_ADDRESS
INVALID_CHANNEL, DENIED = nv.NV_ERR_INVALID_CHANNEL, nv.NV_ERR_INSUFFICIENT_PERMISSIONS
WRONG_FLAGS = nv.NV_ERR_INVALID_ARGUMENT
BASE = 0x10_0000_0000
INVALID_STATE = nv.NV_ERR_INVALID_STATE
IS_EXTERNALLY_OWNED = nv.NV_VASPACE_ALLOCATION_FLAGS_IS_EXTERNALLY_OWNED


def used(card: CardProcess) -> int:
    account = card.account().cards[A10]
    assert sum(use.bytes for use in account.files) == account.used_bytes
    return account.used_bytes


def test_file_is_initialised_first(client: Client) -> None:
    uvm, uuid = Uvm(client), uuid_of(client)
    assert uvm.unmap(uuid, 0, 0) == ILLEGAL
    assert uvm.register_gpu(uuid) == ILLEGAL
    assert uvm.uvm_initialize(1) == OK
    assert uvm.uvm_initialize(1) == OK
    assert uvm.uvm_initialize(0) == WRONG_FLAGS
    assert uvm.unmap(uuid, 0, 0) == INVALID_ADDRESS
    assert uvm.register_gpu(bytes(16)) == nv.NV_ERR_GPU_UUID_NOT_FOUND
    assert uvm.register_gpu(uuid) == OK
    uvm.close()


def test_memory_of_the_host_is_not_the_cards(client: Client) -> None:
    uvm, uuid = Uvm(client), uuid_of(client)
    asked = uuid + b"\1" + bytes(3) + struct.pack("<I", 0xDEAD)
    assert uvm.uvm_initialize() == OK
    assert uvm.call(nv.UVM_PAGEABLE_MEM_ACCESS_ON_GPU, asked, 20) == INVALID_DEVICE
    assert uvm.register_gpu(uuid) == OK
    said, _ = client.connection.ioctl(
        uvm.file.id, nv.UVM_PAGEABLE_MEM_ACCESS_ON_GPU, asked, tgid=client.tgid
    )
    assert said[16:] == bytes(8)
    uvm.close()


def test_address_space_is_on_one_file(client: Client, new_client: NewClient) -> None:
    one, other, uuid = Uvm(client), Uvm(client), uuid_of(client)
    vaspace = client.made(client.device, VASPACE, bytes(48))
    for uvm in (one, other):
        assert uvm.uvm_initialize() == OK
        assert uvm.register_space(uuid, vaspace) == INVALID_DEVICE
        assert uvm.register_gpu(uuid) == OK
    assert one.register_space(uuid, client.device) == nv.NV_ERR_INVALID_OBJECT
    assert one.register_space(uuid, vaspace) == OK
    assert one.register_space(uuid, vaspace) == INVALID_DEVICE
    assert other.register_space(uuid, vaspace) == INVALID_DEVICE
    one.close()
    until(lambda: other.register_space(uuid, vaspace) == OK, "the first file has let go of it")
    stranger = Uvm(new_client(A10, tgid=2))
    assert stranger.uvm_initialize() == OK
    assert stranger.register_gpu(uuid) == OK
    stranger.client.root = client.root
    assert stranger.register_space(uuid, vaspace) == DENIED
    other.close()
    stranger.close()


def test_mapped_memory_stays_until_it_is_unmapped(card: CardProcess, client: Client, vaspace: Space) -> None:
    empty = used(card)
    ends = (
        lambda: vaspace.uvm.unmap(vaspace.uuid, BASE, MIB) or vaspace.uvm.free(BASE, MIB),
        lambda: vaspace.uvm.free(BASE, MIB),
        vaspace.uvm.close,
    )
    for end in ends:
        handle, _ = vaspace.put(BASE)
        assert used(card) == empty + MIB
        assert client.free(handle) == OK
        assert used(card) == empty + MIB
        assert not end()
        until(lambda: used(card) == empty, "nothing holds it any more")


def test_registered_channels_group_stays(card: CardProcess, client: Client, vaspace: Space) -> None:
    empty = used(card)
    channel = HardwareChannel(vaspace, BASE)
    context = used(card) - empty - MIB
    assert context > 100 * MIB
    assert vaspace.uvm.uvm_register_channel(vaspace.uuid, channel.group) == INVALID_HANDLE
    assert vaspace.uvm.uvm_register_channel(vaspace.uuid, channel.handle) == OK
    assert client.free(channel.group) == OK
    assert used(card) - empty == context + MIB
    assert vaspace.uvm.unregister_channel(channel.handle) == OK
    assert vaspace.uvm.unregister_channel(channel.handle) == INVALID_CHANNEL
    assert used(card) - empty == MIB


def schedules(client: Client, group: int) -> set[int]:
    """What turning it on and off comes to."""
    return {client.control(TSG_SCHEDULE, bytes((enable, 0, 0)), group)[0] for enable in (1, 0)}


@pytest.mark.parametrize("by", ["context-share", "group"])
@pytest.mark.parametrize(
    ("flags", "engine", "unregistered"),
    [
        (IS_EXTERNALLY_OWNED, GRAPHICS_ENGINE, INVALID_STATE),
        (IS_EXTERNALLY_OWNED, COPY_ENGINE, OK),
        (0, 1, OK),
    ],
    ids=["graphics", "copies", "rms-own"],
)
def test_channels_of_an_address_space_of_uvms_run_where_they_are_registered(
    client: Client, by: str, flags: int, engine: int, unregistered: int
) -> None:
    uvm, uuid = Uvm(client), uuid_of(client)
    vaspace = client.made(client.device, VASPACE, struct.pack("<II", 0, flags).ljust(56, b"\0"))
    assert (uvm.uvm_initialize(), uvm.register_gpu(uuid), uvm.register_space(uuid, vaspace)) == (OK, OK, OK)
    in_group = vaspace if by == "group" else 0
    group = client.made(
        client.device, nv.KEPLER_CHANNEL_GROUP_A, struct.pack("<5I", 0, 0, in_group, engine, 0)
    )
    params = bytearray(channel_params(0, userd=0, ring=0, entries=0))
    if by == "context-share":
        share = client.made(group, CONTEXT_SHARE, struct.pack("<3I", vaspace, 0, 0))
        struct.pack_into("<I", params, 24, share)
    one, other = (client.made(group, CHANNEL_AMPERE, bytes(params)) for _ in range(2))
    assert uvm.uvm_register_channel(uuid, one) == OK
    assert schedules(client, group) == {unregistered}
    assert uvm.uvm_register_channel(uuid, other) == OK
    assert schedules(client, group) == {OK}
    assert uvm.unregister_channel(one) == OK
    assert schedules(client, group) == {unregistered}
    assert client.free(one) == OK
    assert schedules(client, group) == {OK}
    uvm.close()
    until(lambda: schedules(client, group) == {unregistered}, "nvidia-uvm has stopped what it had")


def test_channel_of_a_group_names_no_address_space(client: Client) -> None:
    vaspace = client.made(client.device, VASPACE, bytes(56))
    group = client.made(client.device, nv.KEPLER_CHANNEL_GROUP_A, struct.pack("<5I", 0, 0, vaspace, 1, 0))
    params = bytearray(channel_params(0, userd=0, ring=0, entries=0))
    struct.pack_into("<I", params, 28, vaspace)
    assert client.alloc(group, CHANNEL_AMPERE, bytes(params))[0] == nv.NV_ERR_INVALID_ARGUMENT


def test_bad_mappings_are_refused(client: Client, vaspace: Space, new_client: NewClient) -> None:
    _, memory = client.memory(MIB)
    uvm, uuid = vaspace.uvm, vaspace.uuid
    assert uvm.map(uuid, BASE, MIB, memory) == INVALID_ADDRESS
    assert uvm.create(BASE, MIB) == OK
    assert uvm.create(BASE + 4096, 4096) == nv.NV_ERR_UVM_ADDRESS_IN_USE
    assert uvm.create(BASE + 2 * MIB, 0) == INVALID_ADDRESS
    assert uvm.map(bytes(16), BASE, MIB, memory) == INVALID_DEVICE
    assert uvm.map(uuid, BASE, 2 * MIB, memory) == INVALID_ADDRESS
    assert uvm.map(uuid, BASE, MIB, client.device) == INVALID_HANDLE
    assert uvm.map(uuid, BASE, MIB, memory, offset=4096) == nv.NV_ERR_INVALID_OFFSET
    elsewhere = new_client(0)
    client.root, mine = elsewhere.root, client.root
    assert uvm.map(uuid, BASE, MIB, elsewhere.memory(MIB)[1]) == INVALID_DEVICE
    client.root = mine
    assert uvm.map(uuid, BASE, MIB, memory) == OK
    assert uvm.free(BASE, 4096) == INVALID_ADDRESS


@pytest.mark.parametrize("cmd", [1, 71, 0x7FFF])
def test_unknown_uvm_commands_are_refused(client: Client, cmd: int) -> None:
    uvm = Uvm(client)
    with pytest.raises(OSError, match="Invalid argument"):
        client.connection.ioctl(uvm.file.id, cmd, struct.pack("<6Q", *[0] * 6))
    uvm.close()
