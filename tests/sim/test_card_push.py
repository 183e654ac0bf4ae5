"""Rings as NVIDIA's hardware takes them: semaphores, copies and launches in an address space, doorbells in a
page.
"""

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
    MIB,
    RELEASE,
    RING_ENTRIES,
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
from tests.support import rm_numbers as nv
from tests.support.waiting import until

RING, DATA, OTHER = 0x10_0000_0000, 0x20_0000_0000, 0x30_0000_0000
FROM_PITCH, TO_PITCH, MULTI_LINE, NON_PIPELINED, FOUR_WORDS = 1 << 7, 1 << 8, 1 << 9, 2, 2 << 3
PITCH = FROM_PITCH | TO_PITCH
NOBODYS = 5  # a subchannel that no engine is at


@pytest.fixture
def channel(vaspace: Space) -> HardwareChannel:
    return HardwareChannel(vaspace, RING)


def errors(card: CardProcess, channel: HardwareChannel) -> int:
    (found,) = [
        group["errors"]
        for engine in card_totals(card, A10)["engines"]
        for group in engine["groups"]
        if (group["client"], group["group"]) == (channel.vaspace.client.root, channel.group)
    ]
    return int(found)


def ends(to: int, from_: int, length: int) -> bytes:
    at = from_ >> 32, from_ & 0xFFFFFFFF, to >> 32, to & 0xFFFFFFFF
    return method(COPY, 0x400, *at) + method(COPY, 0x418, length)


def copied(to: int, from_: int, length: int, how: int = 0, *more: bytes) -> bytes:
    return b"".join((ends(to, from_, length), *more, method(COPY, 0x300, NON_PIPELINED | PITCH | how)))


def test_semaphores_are_released_and_waited_for(vaspace: Space, channel: HardwareChannel) -> None:
    _, data = vaspace.put(DATA)
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


def test_work_waits_for_the_doorbell(vaspace: Space, channel: HardwareChannel) -> None:
    _, data = vaspace.put(DATA)
    channel.submit(semaphore(DATA, 1, RELEASE), ring=False)
    channel.submit(semaphore(DATA + 64, 2, RELEASE), ring=False)
    assert channel.get == 0
    channel.submit(semaphore(DATA + 128, 3, RELEASE))
    wait(data, 128, 3)
    assert (word(data, 0), word(data, 64)) == (1, 2)
    assert channel.get == 3


def test_entry_says_where_words_of_the_next_ones_lie(vaspace: Space, channel: HardwareChannel) -> None:
    """Hopper's SET_PB_SEGMENT_EXTENDED_BASE: 17 bits above an entry's 40."""
    high = 5 << 40
    _, data = vaspace.put(DATA)
    _, words = vaspace.put(high)
    methods = semaphore(DATA, 7, RELEASE)
    words[64 : 64 + len(methods)] = methods
    channel.enter(4 << 32 | high >> 40 << 8)
    channel.enter(64 | len(methods) // 4 << 42)
    wait(data, 0, 7)


def test_counters_are_places_in_the_ring(vaspace: Space, channel: HardwareChannel) -> None:
    _, data = vaspace.put(DATA)
    for number in range(1, 3 * RING_ENTRIES):
        channel.submit(semaphore(DATA, number, RELEASE))
        wait(data, 0, number)
        channel.free_at = 0x10000 + number % 2 * 0x1000
    assert channel.get == (3 * RING_ENTRIES - 1) % RING_ENTRIES


def test_copy_is_done_when_its_semaphore_says_so(vaspace: Space, channel: HardwareChannel) -> None:
    size = 9 * MIB  # more than one piece
    _, source = vaspace.put(DATA, size)
    _, target = vaspace.put(OTHER, size)
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


def test_engines_are_at_their_subchannels_from_the_start(vaspace: Space, channel: HardwareChannel) -> None:
    """As for programs that send no SET_OBJECT."""
    _, source = vaspace.put(DATA)
    _, target = vaspace.put(OTHER)
    source[:16] = bytes(range(16))
    channel.submit(copied(OTHER, DATA, 16), semaphore(DATA + 64, 1, RELEASE))
    wait(source, 64, 1)
    assert target[:16] == bytes(range(16))


def test_lines_with_pitches(vaspace: Space, channel: HardwareChannel) -> None:
    _, source = vaspace.put(DATA)
    _, target = vaspace.put(OTHER)
    source[: 64 * 100] = bytes(range(100)) * 64
    lines = method(COPY, 0x410, 100, 50), method(COPY, 0x41C, 64)
    channel.submit(
        method(COPY, 0, COPY_CLASS),
        copied(OTHER, DATA, 20, MULTI_LINE, *lines),
        semaphore(DATA + MIB - 64, 1, RELEASE),
    )
    wait(source, MIB - 64, 1)
    assert target[: 64 * 50] == (bytes(range(20)) + bytes(30)) * 64


def release(form: str, at: int, value: int, next_at: int) -> bytes:
    """A descriptor with the first semaphore, four words of it, as NVIDIA's header of that version has the
    fields.
    """
    low, high, after = at & 0xFFFFFFFF, at >> 32, next_at >> 8
    size, address, enable, payload, version, following, action, pointer = {
        "2": (256, 736, 138, 800, 580, 141, 142, 480),  # clc3c0qmd.h
        "3": (256, 768, 823, 832, 580, 512, 513, 480),  # clc6c0qmd.h
        "4": (384, 640, 320, 704, 580, 368, 369, 448),  # clcbc0qmd.h
        "5": (384, 480, 288, 544, 468, 336, 337, 384),  # clcdc0qmd.h
    }[form]
    said = 1 << enable | low << address | high << address + 32 | value << payload | int(form) << version
    if next_at:
        said |= 1 << following | 1 << action | after << pointer
    return said.to_bytes(size, "little")


LAUNCH_PCAS, LAUNCH_PCAS2 = (0x2BC, 2), (0x2C0, 9)


@pytest.mark.parametrize(
    ("compute", "form", "how"),
    [
        pytest.param(nv.VOLTA_COMPUTE_A, "2", LAUNCH_PCAS, id="volta"),
        pytest.param(nv.TURING_COMPUTE_A, "2", LAUNCH_PCAS, id="turing"),
        pytest.param(nv.AMPERE_COMPUTE_A, "3", LAUNCH_PCAS2, id="ga100"),
        pytest.param(nv.AMPERE_COMPUTE_B, "2", LAUNCH_PCAS, id="ga102-as-turing"),
        pytest.param(nv.AMPERE_COMPUTE_B, "3", LAUNCH_PCAS2, id="ga102"),
        pytest.param(nv.ADA_COMPUTE_A, "3", LAUNCH_PCAS2, id="ada"),
        pytest.param(nv.HOPPER_COMPUTE_A, "3", LAUNCH_PCAS2, id="hopper-as-ada"),
        pytest.param(nv.HOPPER_COMPUTE_A, "4", LAUNCH_PCAS2, id="hopper"),
        pytest.param(nv.BLACKWELL_COMPUTE_A, "5", LAUNCH_PCAS2, id="blackwell"),
        pytest.param(nv.BLACKWELL_COMPUTE_B, "5", LAUNCH_PCAS2, id="gb20x"),
    ],
)
@pytest.mark.parametrize("inline", [False, True])
def test_launches_take_their_time_and_release(
    card: CardProcess,
    vaspace: Space,
    channel: HardwareChannel,
    compute: int,
    form: str,
    how: tuple[int, int],
    inline: bool,
) -> None:
    """Two descriptors, of which the second depends on the first; whether the card has the class no ring
    says."""
    _, data = vaspace.put(DATA)
    second = release(form, DATA + 0x200, 22, 0)
    data[0x2000 : 0x2000 + len(second)] = second
    first = release(form, DATA + 0x100, 11, DATA + 0x2000)
    where = DATA + 0x1000 >> 8
    words = struct.unpack(f"<{len(first) // 4}I", first)
    if inline:
        put = method(COMPUTE, 0x318, where >> 32, where & 0xFFFFFFFF, *words)
    else:
        put = b""
        data[0x1000 : 0x1000 + len(first)] = first
    channel.submit(
        method(COMPUTE, 0, compute),
        put,
        method(COMPUTE, 0x2B4, where),
        method(COMPUTE, *how),
        semaphore(DATA, 1, RELEASE | WIDE | TIMED),
    )
    wait(data, 0, 1)
    assert (word(data, 0x100, "<I"), word(data, 0x200, "<I")) == (11, 22)
    assert word(data, 0x208) - word(data, 0x108) >= 10_000
    assert data[0x1000 : 0x1000 + len(first)] == first
    assert errors(card, channel) == 0


@pytest.mark.parametrize(
    ("compute", "qmd"),
    [
        pytest.param(nv.AMPERE_COMPUTE_B, bytes(256), id="no version"),
        pytest.param(nv.TURING_COMPUTE_A, release("3", DATA, 1, 0), id="a later version"),
        pytest.param(nv.BLACKWELL_COMPUTE_A, release("3", DATA, 1, 0), id="an earlier version"),
        pytest.param(
            nv.AMPERE_COMPUTE_B,
            (int.from_bytes(release("3", DATA, 1, 0), "little") | 1 << 826).to_bytes(256, "little"),
            id="a reduction",
        ),
        pytest.param(
            nv.AMPERE_COMPUTE_B,
            (int.from_bytes(release("3", DATA, 1, 0), "little") | 1 << 512).to_bytes(256, "little"),
            id="a queue",
        ),
        pytest.param(
            nv.AMPERE_COMPUTE_B,
            (int.from_bytes(release("3", DATA, 1, 0), "little") | 1 << 517).to_bytes(256, "little"),
            id="a second dependent",
        ),
    ],
)
def test_descriptor_that_is_not_played_stops_the_channel(
    card: CardProcess, vaspace: Space, channel: HardwareChannel, compute: int, qmd: bytes
) -> None:
    _, data = vaspace.put(DATA)
    data[0x1000 : 0x1000 + len(qmd)] = qmd
    channel.submit(
        method(COMPUTE, 0, compute), method(COMPUTE, 0x2B4, DATA + 0x1000 >> 8), method(COMPUTE, 0x2BC, 2)
    )
    until(lambda: errors(card, channel) == 1, "the channel has failed")


def test_methods_carry_bytes_and_semaphores(
    card: CardProcess, vaspace: Space, channel: HardwareChannel
) -> None:
    """LOAD_INLINE_DATA, three lines of 6 bytes, and the two kinds of report semaphores."""
    _, data = vaspace.put(DATA)
    at, done = DATA + 0x1000, DATA + 0x40
    channel.submit(
        method(COMPUTE, 0, COMPUTE_CLASS),
        method(COMPUTE, 0x180, 6, 3, at >> 32, at & 0xFFFFFFFF, 16),
        method(COMPUTE, 0x1DC, done >> 32, done & 0xFFFFFFFF, 5),
        method(COMPUTE, 0x1B0, 1 | 2 << 4 | 1 << 12),
        *(method(COMPUTE, 0x1B4, part + line) for line in range(3) for part in (0x04030201, 0xFFFF0605)),
        method(COMPUTE, 0x1B00, DATA >> 32, (DATA + 0x80) & 0xFFFFFFFF, 8, 1 << 28),
        method(COMPUTE, 0x158, 9, 3, DATA + 0xC0 & 0xFFFFFFFF, DATA >> 32, 1 << 12),
        semaphore(DATA, 1, RELEASE),
    )
    wait(data, 0, 1)
    line = b"\x01\x02\x03\x04\x05\x06", b"\x02\x02\x03\x04\x06\x06", b"\x03\x02\x03\x04\x07\x06"
    assert data[0x1000:0x1030] == b"".join(one + bytes(10) for one in line)
    assert (word(data, 0x40), word(data, 0x80), word(data, 0xC0)) == (5, 8, 3 << 32 | 9)
    assert word(data, 0xC8) > 0
    assert errors(card, channel) == 0


def remap(size: int, into: tuple[int, ...], come_in: int = 1, a: int = 0, b: int = 0) -> bytes:
    """SET_REMAP_*: what of each component that is written; 0 to 3 of the source, 4 and 5 the constants, 6
    none.
    """
    said = sum(of << 4 * k for k, of in enumerate(into))
    said |= (size - 1) << 16 | (come_in - 1) << 20 | (len(into) - 1) << 24
    return method(COPY, 0x700, a, b, said)


def test_remapped_copies(card: CardProcess, vaspace: Space, channel: HardwareChannel) -> None:
    _, source = vaspace.put(DATA)
    _, target = vaspace.put(OTHER, 9 * MIB)
    source[:1024] = bytes(range(256)) * 4
    target[0x1000:0x1800] = b"\xee" * 0x800
    channel.submit(
        method(COPY, 0, COPY_CLASS),
        # memset of bytes and of 8 bytes, from nowhere
        remap(1, (4,), a=0xAB),
        copied(OTHER + 0x100001, 0, 8 * MIB - 1000, 1 << 10),
        remap(4, (4, 5), a=0x01020304, b=0x05060708),
        copied(OTHER + 0x100, 0, 16, 1 << 10),
        # of elements of four bytes the third and the first, with a gap that is left as it was
        remap(1, (2, 6, 0), 4),
        copied(OTHER + 0x1000, DATA, 256, 1 << 10),
        semaphore(DATA + MIB - 64, 1, RELEASE),
    )
    wait(source, MIB - 64, 1)
    assert target[0x100000:0x100001] == b"\0"
    assert target[0x100001 : 0x100001 + 8 * MIB - 1000] == b"\xab" * (8 * MIB - 1000)
    assert target[0x100001 + 8 * MIB - 1000] == 0
    assert target[0x100:0x188] == struct.pack("<II", 0x01020304, 0x05060708) * 16 + bytes(8)
    expected = b"".join(bytes((4 * i % 256 + 2, 0xEE, 4 * i % 256)) for i in range(256))
    assert target[0x1000 : 0x1000 + 768] == expected
    assert target[0x1300:0x1310] == b"\xee" * 16
    assert errors(card, channel) == 0


def test_scrubbed_memory_is_zeros(card: CardProcess, vaspace: Space, channel: HardwareChannel) -> None:
    _, target = vaspace.put(OTHER)
    target[:0x3000] = b"\xee" * 0x3000
    channel.submit(
        method(COPY, 0, COPY_CLASS),
        copied(OTHER + 0x1000, 0, 0x1000, 1 << 23),
        semaphore(OTHER + 0x8000, 1, RELEASE),
    )
    wait(target, 0x8000, 1)
    assert target[:0x3000] == b"\xee" * 0x1000 + bytes(0x1000) + b"\xee" * 0x1000
    assert errors(card, channel) == 0


def test_blocks(card: CardProcess, vaspace: Space, channel: HardwareChannel) -> None:
    """A picture of 100 by 40 bytes goes to a place in blocks of two GOBs and two layers, and back."""
    _, source = vaspace.put(DATA)
    _, target = vaspace.put(OTHER)
    picture = os.urandom(100 * 40)
    source[: len(picture)] = picture
    width, height, layer, x, y = 200, 60, 2, 32, 9
    size = 1 << 4 | 1 << 8 | 1 << 12

    def surface(at: int) -> bytes:
        return method(COPY, at, size, width, height, 4, layer)

    channel.submit(
        method(COPY, 0, COPY_CLASS),
        method(COPY, 0x410, 100, 100),
        method(COPY, 0x41C, 40),
        surface(0x70C) + method(COPY, 0x74C, x, y),
        ends(OTHER, DATA, 100),
        method(COPY, 0x300, NON_PIPELINED | FROM_PITCH | MULTI_LINE),
        surface(0x728) + method(COPY, 0x73C, y << 16 | x),
        ends(DATA + 0x8000, OTHER, 100),
        method(COPY, 0x300, NON_PIPELINED | TO_PITCH | MULTI_LINE),
        semaphore(DATA + MIB - 64, 1, RELEASE),
    )
    wait(source, MIB - 64, 1)
    assert source[0x8000 : 0x8000 + len(picture)] == picture
    assert errors(card, channel) == 0

    def place(column: int, line: int) -> int:
        """Of a byte, as Tegra X1's TRM puts it."""
        across, down = -(-width // 64), -(-height // 16)
        gob = ((layer // 2 * down + line // 16) * across + column // 64) * 4 + layer % 2 * 2 + line % 16 // 8
        inside = column % 64 // 32 * 256 + line % 8 // 2 * 64 + column % 32 // 16 * 32 + line % 2 * 16
        return gob * 512 + inside + column % 16

    assert bytes(target[place(x + i % 100, y + i // 100)] for i in range(4000)) == picture


@pytest.mark.parametrize(
    "methods",
    [
        semaphore(DATA - 4096, 1, RELEASE),
        semaphore(DATA + 2, 1, RELEASE),
        semaphore(DATA + MIB - 8, 1, RELEASE | TIMED),
        method(NOBODYS, 0x300, NON_PIPELINED | PITCH),
        method(COPY, 0, COPY_CLASS) + copied(DATA, OTHER, 64),
        method(COPY, 0, COPY_CLASS) + copied(DATA, DATA + MIB - 32, 64),
        method(COPY, 0, COPY_CLASS) + method(COPY, 0x300, NON_PIPELINED),
        method(COPY, 0, COPY_CLASS) + copied(DATA, DATA + 4096, 64, 1 << 12),
        method(COPY, 0, COPY_CLASS) + copied(DATA, DATA + 4096, 64, 1 << 19),
        method(COPY, 0, COPY_CLASS) + copied(DATA, DATA + 4096, 24, 1 << 23),
        method(COPY, 0, COPY_CLASS) + remap(1, (4,)) + copied(OTHER, 0, 64, 1 << 10),
        method(COMPUTE, 0, COMPUTE_CLASS) + method(COMPUTE, 0x180, 4, 1) + method(COMPUTE, 0x1B0, 0),
        method(COMPUTE, 0, COMPUTE_CLASS) + method(COMPUTE, 0x1B4, 0),
        method(COMPUTE, 0, COMPUTE_CLASS) + method(COMPUTE, 0x2B4, OTHER >> 8) + method(COMPUTE, 0x2C0, 9),
        struct.pack("<I", 6 << 29),
    ],
)
def test_wrong_methods_stop_the_channel(
    card: CardProcess, vaspace: Space, channel: HardwareChannel, methods: bytes
) -> None:
    vaspace.put(DATA)
    channel.submit(methods)
    until(lambda: errors(card, channel) == 1, "the channel has failed")


def test_ring_that_is_not_there(card: CardProcess, vaspace: Space, channel: HardwareChannel) -> None:
    assert vaspace.uvm.free(RING, MIB) == OK
    channel.submit(semaphore(DATA, 1, RELEASE))
    until(lambda: errors(card, channel) == 1, "the channel has failed")


def test_pages_of_a_process(client: Client, vaspace: Space, channel: HardwareChannel) -> None:
    """Anonymous shared memory, which the card reaches too; what a program could make shorter it does not."""
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

    assert described(0x1000, 4096)[0] == nv.NV_ERR_INVALID_ADDRESS
    status, handle = described(at, MIB)
    assert status == OK
    assert vaspace.uvm.create(DATA, MIB) == OK
    assert vaspace.uvm.map(vaspace.uuid, DATA, MIB, handle) == OK
    channel.submit(semaphore(DATA + 4096, 99, RELEASE))
    wait(pages, 4096, 99)
