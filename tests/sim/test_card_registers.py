"""Where a simulated card shows what its engines execute and what it has fetched: as NVIDIA's headers have it
for the chip and the class of channel, and nowhere else."""

import mmap
import os
import struct
import time
from collections.abc import Iterator

import pytest

from sim.cards import CardProcess, running
from tests.sim.card_channel import Channel, Group, S, copy, kernel, release
from tests.sim.card_protocol import COPY_ENGINE, GRAPHICS_ENGINE, Client, Connection, Registers
from tests.support import chips
from tests.support import rm_numbers as nv
from tests.support.places import REPOSITORY
from tests.support.waiting import until

BUSY, VALID, IS_GROUP = 1 << 31, 1 << 13, 1 << 12
INTR_RETRIGGER_1 = 0x200
CLASSES = {
    "v100-16": [nv.VOLTA_CHANNEL_GPFIFO_A],
    "titan-rtx": [nv.TURING_CHANNEL_GPFIFO_A],
    "t4": [nv.TURING_CHANNEL_GPFIFO_A],
    "a10": [nv.AMPERE_CHANNEL_GPFIFO_A],
    "a100-40": [nv.AMPERE_CHANNEL_GPFIFO_A],
    "l4": [nv.AMPERE_CHANNEL_GPFIFO_A],
    "rtx-4090": [nv.AMPERE_CHANNEL_GPFIFO_A],
    "h100": [nv.HOPPER_CHANNEL_GPFIFO_A],
    "b200": [nv.BLACKWELL_CHANNEL_GPFIFO_A],
    "rtx-5090": [nv.BLACKWELL_CHANNEL_GPFIFO_B, nv.AMPERE_CHANNEL_GPFIFO_A],
}


@pytest.fixture(scope="module")
def one_of_each(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CardProcess]:
    with running(
        tmp_path_factory.mktemp("card"), ",".join(CLASSES), rm_call_us=0, options=["--disable-channels", "0"]
    ) as process:
        yield process


class Card:
    """One card, a client on it, and its registers."""

    def __init__(self, process: CardProcess, profile: str) -> None:
        self.profile, self.minor = profile, list(CLASSES).index(profile)
        self.connection = Connection(process.card_socket)
        fd, self.said = self.connection.registers(self.minor)
        self.bar = mmap.mmap(fd, os.fstat(fd).st_size, mmap.MAP_SHARED, mmap.PROT_READ)
        os.close(fd)
        self.client = Client(self.connection, self.minor)
        self.chip = chips.chip(self.said.architecture, self.said.implementation)

    def words(self) -> dict[int, int]:
        """All that is not 0, by place."""
        found = struct.unpack(f"<{len(self.bar) // 4}I", self.bar[:])
        return {4 * i: word for i, word in enumerate(found) if word}

    def close(self) -> None:
        self.client.close()
        self.bar.close()
        self.connection.close()


@pytest.fixture(params=CLASSES)
def card(request: pytest.FixtureRequest, one_of_each: CardProcess) -> Iterator[Card]:
    made = Card(one_of_each, request.param)
    yield made
    made.close()


def runlist(said: Registers, engine: int) -> tuple[int, set[int]]:
    [found] = [one for one in said.runlists if engine in one[1]]
    return found


@pytest.mark.parametrize("engine", [GRAPHICS_ENGINE, COPY_ENGINE])
def test_status_word_is_where_the_chip_s_header_has_it(card: Card, engine: int) -> None:
    assert card.words() == {}
    chip, work = card.chip, kernel(10 * S) if engine == GRAPHICS_ENGINE else copy(1 << 40)
    channel = Channel(Group(card.client, engine), channel_class=CLASSES[card.profile][0])
    channel.submit(release(0), work)
    channel.wait(0)
    # Of Volta and Turing RM tells no runlists; a copy engine of graphics' shares its runlist from Ampere on.
    base = 0 if chip.whole_card else runlist(card.said, GRAPHICS_ENGINE)[0]
    index = int(engine == COPY_ENGINE)
    at = base + chip.status + index * chip.stride
    wanted = (
        (channel.group.tsg + (not chip.whole_card)) | VALID | BUSY | (IS_GROUP if chip.whole_card else 0)
    )
    until(lambda: card.words() == {at: wanted}, "it says so, a moment later")
    channel.group.schedule(enable=False)
    assert card.words() == {}, "saved, and nobody came"
    channel.group.schedule(enable=True)
    until(lambda: card.words() == {at: wanted}, "it is back")
    time.sleep(0.01)
    card.client.free(channel.handle)
    assert card.words() == {at: wanted & ~BUSY}, "idle, with its context still there"
    card.client.free(channel.group.handle)
    assert card.words() == {}


def test_runlists_hold_no_more_engines_than_the_chip_has_words(card: Card) -> None:
    if card.chip.whole_card:
        assert card.said.runlists == []
        return
    base, shared = runlist(card.said, GRAPHICS_ENGINE)
    assert len(shared) == card.chip.words
    assert COPY_ENGINE in shared
    assert all(len(engines) <= 1 for at, engines in card.said.runlists if at != base)


@pytest.mark.parametrize("profile", ["rtx-5090"])
def test_where_ga100_has_its_status_gb202_has_a_trigger_that_reads_as_0(
    one_of_each: CardProcess, profile: str
) -> None:
    card = Card(one_of_each, profile)
    assert (card.chip.name, card.chip.status) == ("GB202", 0x90)
    channel = Channel(Group(card.client), channel_class=CLASSES[profile][0])
    channel.submit(release(0), kernel(10 * S))
    channel.wait(0)
    base, _ = runlist(card.said, GRAPHICS_ENGINE)
    until(lambda: base + card.chip.status in card.words(), "it executes")
    assert base + INTR_RETRIGGER_1 not in card.words()
    card.close()


def test_gp_get_is_written_for_classes_whose_control_struct_has_it(card: Card) -> None:
    """Of an older class on Blackwell too the hardware is Blackwell's."""
    for number in CLASSES[card.profile]:
        get, put = chips.userd()[number]
        channel = Channel(Group(card.client), channel_class=number)
        channel.submit(release(0))
        channel.wait(0)
        assert channel.word(put) == 1
        assert channel.word(0x88) == (1 if get == 0x88 and card.chip.has_get else 0)


def test_card_s_table_agrees_with_the_facts() -> None:
    """The card's table is its own."""
    text = (REPOSITORY / "sim/card/facts/registers.def").read_text()
    rows = [line[10:-1].split(", ") for line in text.splitlines() if line.startswith("REGISTERS(")]
    assert len(rows) > 9
    for name, whole, status, stride, words, loads, saves, has_get in rows:
        known = chips.named(name)
        assert (whole == "true", int(status, 0), int(stride), int(words), int(loads), has_get == "true") == (
            known.whole_card,
            known.status,
            known.stride,
            known.words,
            known.loads,
            known.has_get,
        )
        assert int(loads) + int(saves) == 5 + 6
