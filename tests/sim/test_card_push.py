"""Rings as NVIDIA's hardware takes them: semaphores, copies and launches in an address space, doorbells in a page."""

from __future__ import annotations

import os
import struct

import pytest

from sim.cards import CardProcess
from tests.sim.card_channel import card_totals
from tests.sim.card_protocol import OK, Client, rm_cmd
from tests.sim.card_space import (
    ACQUIRE_GEQ,
    COMPUTE,
    COMPUTE_CLASS,
    COPY,
    COPY_CLASS,
    ENTRIES,
    MIB,
    RELEASE,
    TIMED,
    WIDE,
    HardwareChannel,
    Space,
    anonymous_shared,
    method,
    semaphore,
    wait,
    word,
)
from tests.sim.conftest import A10
from tests.support.waiting import until

pytestmark = pytest.mark.sim
RING, DATA, OTHER = 0x10_0000_0000, 0x20_0000_0000, 0x30_0000_0000
PITCH, MULTI_LINE, NON_PIPELINED, FOUR_WORDS = 3 << 7, 1 << 9, 2, 2 << 3


@pytest.fixture
def channel(space: Space) -> HardwareChannel:
    return HardwareChannel(space, RING)


def errors(card: CardProcess, channel: HardwareChannel) -> int:
    (found,) = [
        group["errors"]
        for engine in card_totals(card, A10)["engines"]
        for group in engine["groups"]
        if (group["client"], group["group"]) == (channel.space.client.root, channel.group)
    ]
    return int(found)


def copied(to: int, from_: int, length: int, how: int = 0, *more: bytes) -> bytes:
    ends = from_ >> 32, from_ & 0xFFFFFFFF, to >> 32, to & 0xFFFFFFFF
    launch = method(COPY, 0x300, NON_PIPELINED | PITCH | how)
    return b"".join((method(COPY, 0x400, *ends), method(COPY, 0x418, length), *more, launch))


def test_semaphores_are_released_and_waited_for(space: Space, channel: HardwareChannel) -> None:
    _, data = space.put(DATA)
    channel.submit(
        semaphore(DATA, 1 << 40 | 7, RELEASE | WIDE | TIMED),
        semaphore(DATA + 64, 5, ACQUIRE_GEQ | WIDE),
        semaphore(DATA + 128, 9, RELEASE),
    )
    wait(data, 0, 1 << 40 | 7)
    assert word(data, 8) > 0
    assert word(data, 128) == 0
    struct.pack_into("<Q", data, 64, 4)
    assert word(data, 128) == 0
    struct.pack_into("<Q", data, 64, 6)  # by the host, without a ring
    wait(data, 128, 9)


def test_nothing_is_done_until_it_is_rung(space: Space, channel: HardwareChannel) -> None:
    _, data = space.put(DATA)
    channel.submit(semaphore(DATA, 1, RELEASE), ring=False)
    channel.submit(semaphore(DATA + 64, 2, RELEASE), ring=False)
    assert channel.get == 0
    channel.submit(semaphore(DATA + 128, 3, RELEASE))
    wait(data, 128, 3)
    assert (word(data, 0), word(data, 64)) == (1, 2)
    assert channel.get == 3


def test_counters_are_places_in_the_ring(space: Space, channel: HardwareChannel) -> None:
    _, data = space.put(DATA)
    for number in range(1, 3 * ENTRIES):
        channel.submit(semaphore(DATA, number, RELEASE))
        wait(data, 0, number)
        channel.free_at = 0x10000 + number % 2 * 0x1000
    assert channel.get == (3 * ENTRIES - 1) % ENTRIES


def test_a_copy_is_done_when_its_semaphore_says_so(space: Space, channel: HardwareChannel) -> None:
    size = 9 * MIB  # more than one piece
    _, source = space.put(DATA, size)
    _, target = space.put(OTHER, size)
    content = os.urandom(size)
    source[:] = content
    channel.submit(
        method(COPY, 0, COPY_CLASS),
        method(COPY, 0x240, OTHER + 0x800000 >> 32, OTHER + 0x800000 & 0xFFFFFFFF, 77),
        copied(OTHER, DATA, size - 2 * MIB, FOUR_WORDS),
    )
    wait(target, 0x800000, 77)
    assert target[: size - 2 * MIB] == content[: size - 2 * MIB]
    assert target[size - 2 * MIB : 0x800000] == bytes(0x800000 - (size - 2 * MIB))
    assert word(target, 0x800008) > 0


def test_lines_with_pitches(space: Space, channel: HardwareChannel) -> None:
    _, source = space.put(DATA)
    _, target = space.put(OTHER)
    source[: 64 * 100] = bytes(range(100)) * 64
    lines = method(COPY, 0x410, 100, 50), method(COPY, 0x41C, 64)
    channel.submit(
        method(COPY, 0, COPY_CLASS),
        copied(OTHER, DATA, 20, MULTI_LINE, *lines),
        semaphore(DATA + MIB - 64, 1, RELEASE),
    )
    wait(source, MIB - 64, 1)
    assert target[: 64 * 50] == (bytes(range(20)) + bytes(30)) * 64


def test_launches_take_their_time_and_release(
    card: CardProcess, space: Space, channel: HardwareChannel
) -> None:
    """Two descriptors of Ampere's format, of which the second depends on the first."""
    _, data = space.put(DATA)

    def descriptor(release_at: int, value: int, next_at: int = 0) -> bytes:
        bits = 1 << 823 | (release_at & 0xFFFFFFFF) << 768 | release_at >> 32 << 800 | value << 832
        bits |= (1 << 512 | next_at >> 8 << 480) if next_at else 0
        return bits.to_bytes(256, "little")

    data[0x1000:0x1100] = descriptor(DATA + 0x100, 11, DATA + 0x2000)
    data[0x2000:0x2100] = descriptor(DATA + 0x200, 22)
    channel.submit(
        method(COMPUTE, 0, COMPUTE_CLASS),
        method(COMPUTE, 0x2B4, DATA + 0x1000 >> 8),
        method(COMPUTE, 0x2C0, 9),
        semaphore(DATA, 1, RELEASE | WIDE | TIMED),
    )
    wait(data, 0, 1)
    assert (word(data, 0x100), word(data, 0x200)) == (11, 22)
    assert word(data, 0x208) - word(data, 0x108) >= 10_000
    assert errors(card, channel) == 0


@pytest.mark.parametrize(
    "methods",
    [
        semaphore(DATA - 4096, 1, RELEASE),
        semaphore(DATA + 2, 1, RELEASE),
        semaphore(DATA + MIB - 8, 1, RELEASE | TIMED),
        method(COPY, 0x300, NON_PIPELINED | PITCH),
        method(COPY, 0, COPY_CLASS) + copied(DATA, OTHER, 64),
        method(COPY, 0, COPY_CLASS) + copied(DATA, DATA + MIB - 32, 64),
        method(COPY, 0, COPY_CLASS) + method(COPY, 0x300, NON_PIPELINED),
        method(COMPUTE, 0, COMPUTE_CLASS) + method(COMPUTE, 0x2B4, OTHER >> 8) + method(COMPUTE, 0x2C0, 9),
        struct.pack("<I", 6 << 29),
    ],
)
def test_what_is_wrong_stops_the_channel(
    card: CardProcess, space: Space, channel: HardwareChannel, methods: bytes
) -> None:
    space.put(DATA)
    channel.submit(methods)
    until(lambda: errors(card, channel) == 1, "the channel has failed")


def test_a_ring_that_is_not_there(card: CardProcess, space: Space, channel: HardwareChannel) -> None:
    assert space.uvm.free(RING, MIB) == OK
    channel.submit(semaphore(DATA, 1, RELEASE))
    until(lambda: errors(card, channel) == 1, "the channel has failed")


def test_pages_of_a_process(client: Client, space: Space, channel: HardwareChannel) -> None:
    """Anonymous shared memory, which the card reaches too; what somebody could make shorter it does not."""
    node = client.connection.open(1, A10, tgid=os.getpid())
    registration = struct.pack("<i", -1)
    client.connection.ioctl(node.id, rm_cmd(201, 4), registration, aux=client.file.id)
    pages, at = anonymous_shared(MIB)

    def described(address: int, size: int) -> tuple[int, int]:
        ask = struct.pack(
            "<6I2Q4I", client.root, client.device, 0, 0x71, 0, 0, address, size - 1, 0, 0, 0, 0
        )
        said, _ = client.connection.ioctl(node.id, rm_cmd(0x27, 56), ask, tgid=os.getpid())
        return int(struct.unpack_from("<I", said, 0x28)[0]), int(struct.unpack_from("<I", said, 8)[0])

    assert described(0x1000, 4096)[0] == 0x1E
    status, handle = described(at, MIB)
    assert status == OK
    assert space.uvm.create(DATA, MIB) == OK
    assert space.uvm.map(space.uuid, DATA, MIB, handle) == OK
    channel.submit(semaphore(DATA + 4096, 99, RELEASE))
    wait(pages, 4096, 99)
    os.close(node.fd)
