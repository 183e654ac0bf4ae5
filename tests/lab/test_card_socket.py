"""The emulated card at its socket: vfio-user's messages, whole and broken, and the registers behind them."""

import os
import random
import struct
from itertools import pairwise
from pathlib import Path

import pytest

from tests.lab.vfio_user import (
    BAR0,
    BAR1,
    BAR3,
    CONFIG,
    DMA_MAP,
    DMA_UNMAP,
    GET_INFO,
    GET_IRQ,
    GET_REGION,
    HEADER,
    NO_REPLY,
    PROGRAM,
    READ,
    RESET,
    SET_IRQS,
    VERSION,
    WRITE,
    WRITE_MULTI,
    Card,
    Guest,
    running,
)
from tests.support.commands import attempt

LEAF, LEAF_ENABLE, TOP_ENABLE, TRIGGER = 0xB81000, 0xB81200, 0xB81608, 0xB81640
MSI, FALL_OFF = 1, 0xF0


def test_it_says_what_it_is(card: Card) -> None:
    client = card.client
    assert client.call(VERSION, struct.pack("<HH", 0, 0) + b"{}\0").startswith(struct.pack("<HH", 0, 0))
    assert struct.unpack("<IIII", client.call(GET_INFO, bytes(16))) == (16, 3, 9, 5)
    sizes = []
    for region in (BAR0, BAR1, BAR3, CONFIG):
        body = client.call(GET_REGION, struct.pack("<IIIIQQ", 32, 0, region, 0, 0, 0))
        sizes.append(struct.unpack("<IIIIQQ", body)[4])
    assert sizes == [16 << 20, 256 << 20, 32 << 20, 4096]
    assert struct.unpack("<IIII", client.call(GET_IRQ, struct.pack("<IIII", 16, 0, MSI, 0)))[3] == 1
    assert client.register(0) == 0x172000A1
    assert client.read(CONFIG, 0) == struct.pack("<HH", 0x10DE, 0x2236)


def test_its_identity_cannot_be_written_and_its_command_can(card: Card) -> None:
    card.client.write(CONFIG, 0, b"\xff\xff\xff\xff\x06\x00")
    assert card.client.read(CONFIG, 0, 6) == struct.pack("<HHH", 0x10DE, 0x2236, 6)


def test_several_messages_at_once_are_answered_in_order(card: Card) -> None:
    client = card.client
    one = client.packed(READ, struct.pack("<QII", 0, BAR0, 4))
    two = client.packed(WRITE, struct.pack("<QII", 0x1400, BAR0, 4) + b"\x11\x22\x33\x44")
    three = client.packed(READ, struct.pack("<QII", 0x1400, BAR0, 4))
    client.send(one + two + three)
    replies = [client.receive() for _ in range(3)]
    assert [reply.command for reply in replies] == [READ, WRITE, READ]
    assert replies[0].body[16:] == struct.pack("<I", 0x172000A1)
    assert replies[2].body[16:] == b"\x11\x22\x33\x44"


def test_descriptor_belongs_to_the_message_that_brings_it(card: Card) -> None:
    client, fd = card.client, os.memfd_create("guest")
    os.ftruncate(fd, 4096)
    client.send(client.packed(READ, struct.pack("<QII", 0, BAR0, 4)))
    client.send(client.packed(DMA_MAP, struct.pack("<IIQQQ", 32, 3, 0, 0x5000, 4096)), [fd])
    client.send(client.packed(READ, struct.pack("<QII", 0, BAR0, 4)))
    assert [client.receive().error for _ in range(3)] == [0, 0, 0]
    os.pwrite(fd, b"guest", 0)
    _map_bar1(card, 0, _host_entry(0x5000))
    assert client.read(BAR1, 0, 5) == b"guest"
    client.call(DMA_UNMAP, struct.pack("<IIQQ", 24, 0, 0x5000, 4096))
    assert client.read(BAR1, 0, 5) == b"\xff" * 5


def test_message_that_comes_byte_by_byte_is_one(card: Card) -> None:
    for byte in card.client.packed(READ, struct.pack("<QII", 0, BAR0, 4)):
        card.client.send(bytes([byte]))
    assert card.client.receive().body[16:] == struct.pack("<I", 0x172000A1)


def test_writes_that_want_no_answer_get_none(card: Card) -> None:
    client = card.client
    client.send(client.packed(WRITE, struct.pack("<QII", 0x1400, BAR0, 4) + b"quiet"[:4], NO_REPLY))
    assert client.read(BAR0, 0x1400) == b"quie"


def test_many_writes_in_one_message_are_all_done(card: Card) -> None:
    writes = [(0x1400 + 4 * i, struct.pack("<I", i)) for i in range(5)]
    body = struct.pack("<Q", len(writes))
    body += b"".join(struct.pack("<QII8s", at, BAR0, len(data), data) for at, data in writes)
    card.client.call(WRITE_MULTI, body)
    assert card.client.read(BAR0, 0x1400, 20) == b"".join(data for _, data in writes)


@pytest.mark.parametrize(
    ("command", "body"),
    [
        (READ, struct.pack("<QII", (16 << 20) - 3, BAR0, 4)),
        (READ, struct.pack("<QII", (1 << 64) - 4, BAR0, 8)),
        (READ, struct.pack("<QII", 0, 8, 4)),
        (READ, struct.pack("<QII", 0, 1 << 31, 4)),
        (READ, struct.pack("<QII", 0, BAR1, 0xFFFFFFFF)),
        (READ, b"short"),
        (WRITE, struct.pack("<QII", 0, BAR0, 8) + b"four"),
        (WRITE, struct.pack("<QII", 0, BAR0, 0xFFFFFFFF) + b"four"),
        (WRITE_MULTI, struct.pack("<Q", 1 << 60) + bytes(64)),
        (WRITE_MULTI, struct.pack("<QQII8s", 1, 0, BAR0, 9, b"")),
        (SET_IRQS, struct.pack("<IIIII", 20, 4, 9, 0, 1)),
        (SET_IRQS, struct.pack("<IIIII", 20, 4, 1, 7, 0xFFFFFFFF)),
        (DMA_MAP, struct.pack("<IIQQQ", 32, 3, 0, 1 << 63, (1 << 63) + 1)),
        (99, b""),
    ],
)
def test_what_is_no_message_of_the_protocol_is_refused_and_changes_nothing(
    card: Card, command: int, body: bytes
) -> None:
    with pytest.raises(OSError, match=r"Invalid argument|Cannot allocate memory"):
        card.client.call(command, body)
    assert card.client.register(0) == 0x172000A1


@pytest.mark.parametrize("size", [0, 15, (1 << 20) + 8192, 0xFFFFFFFF])
def test_header_that_is_none_ends_it_with_a_line(card: Card, size: int) -> None:
    card.client.send(HEADER.pack(1, READ, size, 0, 0))
    with pytest.raises((EOFError, ConnectionError)):
        card.client.receive()
    status, said = card.ends()
    assert status == 1
    assert said == "mgpu-labcard: QEMU's end of the socket: Protocol error\n"


@pytest.mark.parametrize("left", [1, 20])
def test_message_that_is_cut_off_ends_it_with_a_line(card: Card, left: int) -> None:
    card.client.send(card.client.packed(READ, struct.pack("<QII", 0, BAR0, 4))[:-left])
    assert card.ends() == (1, "mgpu-labcard: QEMU's end of the socket: Protocol error\n")


def test_it_ends_quietly_with_the_guest(card: Card) -> None:
    assert card.client.register(0)
    assert card.ends() == (0, "")


def test_card_off_its_bus_reads_as_ones_for_good(card: Card) -> None:
    client = card.client
    client.write(CONFIG, FALL_OFF, b"\1")
    for _ in range(2):
        for region in (BAR0, BAR1, BAR3, CONFIG):
            client.write(region, 0x1400 if region == BAR0 else 0, bytes(4))
            assert client.read(region, 0x1400 if region == BAR0 else 0) == b"\xff" * 4
        client.call(RESET, b"")


def _rung(eventfd: int) -> bool:
    try:
        return os.eventfd_read(eventfd) > 0
    except BlockingIOError:
        return False


def test_interrupt_comes_when_its_leaf_and_the_top_are_enabled(card: Card) -> None:
    client, fd = card.client, os.eventfd(0, os.EFD_NONBLOCK)
    client.call(SET_IRQS, struct.pack("<IIIII", 20, 4 | 32, MSI, 0, 1), [fd])
    client.set(TRIGGER, 37)
    assert not _rung(fd)
    client.set(TOP_ENABLE, 1)
    assert not _rung(fd)
    client.set(LEAF_ENABLE + 4, 1 << 5)
    assert _rung(fd)
    assert client.register(LEAF + 4) == 1 << 5
    client.set(LEAF + 4, 1 << 5)
    assert client.register(LEAF + 4) == 0


def _map_bar1(card: Card, address: int, entry: int) -> None:
    """A page of 4 KiB, by tables in the card's memory."""
    base = 16 << 20
    directory = (card.memory_mib - 64) << 20
    for level, (at, shift, bits) in enumerate(((directory, 47, 2), (base, 38, 9), (base + 0x1000, 29, 9))):
        index = address >> shift & ((1 << bits) - 1)
        card.client.video(at + 8 * index, struct.pack("<Q", _directory_entry(base + 0x1000 * level)))
    index = address >> 21 & 0xFF
    small = base + 0x3000
    card.client.video(base + 0x2000 + 16 * index + 8, struct.pack("<Q", _directory_entry(small)))
    card.client.video(small + 8 * (address >> 12 & 0x1FF), struct.pack("<Q", entry))


def test_bar_1_of_hopper_leads_to_doorbells_and_not_to_memory(tmp_path: Path) -> None:
    """A page of the kind for messages names registers of the virtual function, which begin at 0xB80000."""
    with running(tmp_path, 1024, "--chip", "gh100") as card:
        client, guest = card.client, Guest(card.client, 0x30000, 0x1000)
        window, bar1, base = 0x10FD40, 2, 16 << 20
        tables = [(1024 - 64) << 20, *(base + 0x1000 * level for level in range(5))]

        def put(at: int, entry: int) -> None:
            client.set(window, at >> 16)
            client.write(BAR0, 0x700000 + at % 0x10000, struct.pack("<Q", entry))

        for at, below in pairwise(tables):
            put(at + (8 if below == tables[-1] else 0), below | 1 << 1)
        put(tables[-1], 0x30000 | 0xF << 8 | 2 << 1 | 1)
        client.set(0xBB0400, 0x1234)
        assert client.read(bar1, 0x400) == struct.pack("<I", 0x1234)
        client.write(bar1, 0x404, b"bell")
        assert client.read(BAR0, 0xBB0404) == b"bell"
        put(tables[-1], 0x30000 | 2 << 1 | 1)
        client.write(bar1, 0x404, b"page")
        assert guest.get(0x30404, 4) == b"page"
        assert client.read(BAR0, 0xBB0404) == b"bell"


def _directory_entry(address: int) -> int:
    return address >> 12 << 8 | 1 << 1


def _host_entry(address: int) -> int:
    return address >> 12 << 8 | 2 << 1 | 1


def test_after_a_reset_nothing_is_left(card: Card) -> None:
    client = card.client
    client.set(0x1400, 5)
    client.video(0x123000, b"secret")
    client.call(RESET)
    assert client.register(0x1400) == 0
    assert client.video_read(0x123000, 6) == bytes(6)


@pytest.mark.parametrize("seed", range(4))
def test_no_message_breaks_it(tmp_path: Path, seed: int) -> None:
    """Well-formed headers with any body: an answer comes to each, and it ends as it should."""
    choice = random.Random(seed)
    with running(tmp_path) as card:
        for _ in range(200):
            body = bytearray(choice.randbytes(choice.choice((0, 4, 16, 20, 24, 32, 40, 300))))
            if len(body) >= 16 and choice.random() < 0.7:
                offset = choice.choice((choice.randrange(1 << 24), choice.randrange(1 << 64)))
                region, count = choice.choice((0, 1, 3, 7, 9)), choice.choice((1, 4, 8, len(body) - 16))
                body[:16] = struct.pack("<QII", offset, region, count)
            command = choice.choice((*range(1, 16), READ, WRITE, READ, WRITE))
            card.client.send(card.client.packed(command, bytes(body)))
            assert card.client.receive().number == card.client.number
        assert card.ends()[0] == 0


def test_what_it_does_not_know_is_refused_with_what_it_does(tmp_path: Path) -> None:
    for option, value, known in (("--chip", "gx999", "ga102"), ("--driver", "1.2.3", "550.163.01")):
        done = attempt(PROGRAM, "--socket", tmp_path / "s", option, value)
        assert done.status == 2
        assert f"{option} {value}: not known; known are:" in done.err
        assert known in done.err
