"""Channels of the emulated card run: rings, semaphores and copies through page tables."""

import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from tests.lab.gsp_driver import BASE, SET_PAGE_DIRECTORY, Driver
from tests.lab.vfio_user import Card, Guest
from tests.support import rm_numbers as nv

# Each object has its class for a handle.
CLIENT, DEVICE, SUBDEVICE = 0xC1D00001, nv.NV01_DEVICE_0, nv.NV20_SUBDEVICE_0
SPACE, GROUP, CHANNEL = nv.FERMI_VASPACE_A, nv.KEPLER_CHANNEL_GROUP_A, nv.AMPERE_CHANNEL_GPFIFO_A
GROUP_SCHEDULE, SET_TIMESLICE = nv.NVA06C_CTRL_CMD_GPFIFO_SCHEDULE, nv.NVA06C_CTRL_CMD_SET_TIMESLICE
GET_TIMESLICE, DISABLE_CHANNELS = nv.NVA06C_CTRL_CMD_GET_TIMESLICE, nv.NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS
DOORBELL = 0xBB0090
GRAPHICS, COPY_ENGINE = 1, 9
MEMORY = BASE + (1 << 20)  # mapped at VA; two pages after each other are 4 MiB apart
VA = 0x2_0000_0000
USERD, RING, COMMANDS, DATA, SEMAPHORE = (
    BASE + (2 << 20) + at for at in (0, 0x1000, 0x2000, 0x3000, 0x7000)
)
TABLES, OTHER = BASE + (4 << 20), BASE + (3 << 20)
REGISTER_FAULT_BUFFER, FAULT_PUT = 0x20800A9B, 0xB8302C
ENTRIES = 8
WAIT_S = 30
GET, PUT = 0x88, 0x8C
COPY, RELEASE, ACQUIRE_GEQ = nv.AMPERE_DMA_COPY_B, 1 | 1 << 20, 3
PAGE_OF = {RING: 0, COMMANDS: 1, DATA: 2, DATA + 0x1000: 3, SEMAPHORE: 4}


def wait(done: Callable[[], bool]) -> bool:
    end = time.monotonic() + WAIT_S
    while not done() and time.monotonic() < end:
        time.sleep(0.002)
    return done()


def methods(subchannel: int, method: int, *data: int) -> bytes:
    return struct.pack(
        f"<{1 + len(data)}I", 1 << 29 | len(data) << 16 | subchannel << 13 | method >> 2, *data
    )


def semaphore(how: int, payload: int, address: int = VA + 4 * 4096) -> bytes:
    return methods(0, 0x5C, address & 0xFFFFFFFF, address >> 32, payload, 0, how)


@dataclass
class Channel:
    card: Card
    engine: int = GRAPHICS
    driver: Driver = field(init=False)
    put: int = 0

    def __post_init__(self) -> None:
        self.driver = Driver(self.card.client)
        self.driver.boot()
        for parent, handle, class_id in ((0, CLIENT, 0), (CLIENT, DEVICE, DEVICE), (DEVICE, SPACE, SPACE)):
            self.driver.alloc(CLIENT, parent, handle, class_id, bytes(48))
        self._tables()
        self.driver.alloc(CLIENT, DEVICE, GROUP, GROUP, struct.pack("<5I", 0, 0, SPACE, self.engine, 0))
        params = bytearray(360)
        struct.pack_into("<QI", params, 8, VA, ENTRIES)
        struct.pack_into("<QQII", params, 168, USERD, 512, 1, 0)
        self.guest.put(USERD, b"\xff" * 512)
        self.driver.alloc(CLIENT, GROUP, CHANNEL, CHANNEL, bytes(params))

    @property
    def guest(self) -> Guest:
        return self.driver.guest

    def _tables(self) -> None:
        """Four directories in the guest's memory, then a page of small pages."""
        at = [TABLES + 0x1000 * i for i in range(5)]
        for level, shift in enumerate((47, 38, 29)):
            index = VA >> shift & (3 if shift == 47 else 511)
            self.guest.put(at[level] + 8 * index, struct.pack("<Q", at[level + 1] >> 12 << 8 | 2 << 1))
        index = VA >> 21 & 255
        self.guest.put(at[3] + 16 * index + 8, struct.pack("<Q", at[4] >> 12 << 8 | 2 << 1))
        for address, page in PAGE_OF.items():
            self.guest.put(at[4] + 8 * page, struct.pack("<Q", address >> 12 << 8 | 2 << 1 | 1))
        params = struct.pack("<QIIII", at[0], 4, 1, SPACE, 0)
        self.driver.call(SET_PAGE_DIRECTORY, struct.pack("<3I4x", CLIENT, DEVICE, 0) + params)

    def schedule(self, enable: bool = True) -> int:
        return self.driver.control(CLIENT, GROUP, GROUP_SCHEDULE, bytes([enable, 0]))[0]

    def submit(self, commands: bytes) -> None:
        at = self.put % ENTRIES * 512
        self.guest.put(COMMANDS + at, commands)
        entry = (VA + 4096 + at) | (len(commands) // 4) << 42
        self.guest.put(RING + self.put % ENTRIES * 8, struct.pack("<Q", entry))
        self.put += 1
        self.guest.put(USERD + PUT, struct.pack("<I", self.put % ENTRIES))
        self.card.client.set(DOORBELL, 1)

    @property
    def fetched(self) -> int:
        return int(self.guest.word(USERD + GET))

    @property
    def value(self) -> int:
        return int(self.guest.word(SEMAPHORE))


@pytest.fixture
def channel(card: Card) -> Channel:
    return Channel(card)


def test_new_channel_has_nothing_to_do(channel: Channel) -> None:
    assert (channel.fetched, channel.guest.word(USERD + PUT)) == (0, 0)


def test_semaphore_is_released_when_the_group_is_scheduled(channel: Channel) -> None:
    channel.submit(semaphore(RELEASE, 7))
    time.sleep(0.05)
    assert (channel.value, channel.fetched) == (0, 0)
    assert channel.schedule() == 0
    assert wait(lambda: channel.value == 7)
    assert wait(lambda: channel.fetched == 1)


def test_ring_goes_round(channel: Channel) -> None:
    def released() -> bool:
        return channel.value == i

    channel.schedule()
    for i in range(1, 4 * ENTRIES):
        channel.submit(semaphore(RELEASE, i))
        assert wait(released)


def test_acquire_waits_for_the_host(channel: Channel) -> None:
    channel.schedule()
    channel.submit(semaphore(ACQUIRE_GEQ, 5) + semaphore(RELEASE, 9))
    time.sleep(0.05)
    assert channel.value == 0
    channel.guest.put(SEMAPHORE, struct.pack("<I", 6))
    assert wait(lambda: channel.value == 9)


@pytest.mark.parametrize("physical", [False, True])
@pytest.mark.parametrize(("engine", "named_on"), [(GRAPHICS, 4), (COPY_ENGINE, 4), (COPY_ENGINE, 0)])
def test_copy_engine_copies(card: Card, engine: int, named_on: int, physical: bool) -> None:
    channel = Channel(card, engine)
    channel.schedule()
    data = bytes(range(256)) * 16
    channel.guest.put(DATA, data)
    addresses = (DATA, DATA + 0x1000) if physical else (VA + 2 * 4096, VA + 3 * 4096)
    commands = methods(named_on, 0, COPY) + methods(4, 0x260, 1, 1)
    commands += methods(4, 0x400, *(part for a in addresses for part in (a >> 32, a & 0xFFFFFFFF)))
    commands += methods(4, 0x418, len(data), 1)
    commands += methods(4, 0x240, (VA + 4 * 4096) >> 32, (VA + 4 * 4096) & 0xFFFFFFFF, 3)
    commands += methods(4, 0x300, 2 | 1 << 3 | 3 << 7 | (3 << 12 if physical else 0))
    channel.submit(commands)
    assert wait(lambda: channel.value == 3)
    assert channel.guest.get(DATA + 0x1000, len(data)) == data


def test_words_of_before_volta_release_too(channel: Channel) -> None:
    channel.schedule()
    address = VA + 4 * 4096
    channel.submit(methods(0, 0x10, address >> 32, address & 0xFFFFFFFF, 11, 2 | 1 << 24))
    assert wait(lambda: channel.value == 11)


def test_fault_ends_the_channel_alone(channel: Channel) -> None:
    channel.schedule()
    channel.submit(semaphore(RELEASE, 1, VA + (64 << 20)))
    channel.submit(semaphore(RELEASE, 2))
    time.sleep(0.1)
    assert channel.value == 0
    assert channel.card.client.register(0) == 0x172000A1


def test_channel_that_is_disabled_goes_on_when_it_is_enabled(channel: Channel) -> None:
    channel.schedule()
    params = bytearray(536)
    struct.pack_into("<B3xI", params, 0, 1, 1)
    struct.pack_into("<I", params, 24, CLIENT)
    struct.pack_into("<I", params, 24 + 256, CHANNEL)
    assert channel.driver.control(CLIENT, SUBDEVICE, DISABLE_CHANNELS, bytes(params))[0] == 0
    channel.submit(semaphore(RELEASE, 4))
    time.sleep(0.05)
    assert channel.value == 0
    params[0] = 0
    assert channel.driver.control(CLIENT, SUBDEVICE, DISABLE_CHANNELS, bytes(params))[0] == 0
    assert wait(lambda: channel.value == 4)
    struct.pack_into("<I", params, 24 + 256, 0xDEAD)
    assert (
        channel.driver.control(CLIENT, SUBDEVICE, DISABLE_CHANNELS, bytes(params))[0]
        == nv.NV_ERR_OBJECT_NOT_FOUND
    )


def test_timeslice_is_kept_and_one_that_is_too_long_refused(channel: Channel) -> None:
    control = channel.driver.control
    assert control(CLIENT, GROUP, SET_TIMESLICE, struct.pack("<Q", 1500))[0] == 0
    assert control(CLIENT, GROUP, GET_TIMESLICE, bytes(8)) == (0, struct.pack("<Q", 1500))
    assert control(CLIENT, GROUP, SET_TIMESLICE, struct.pack("<Q", 1 << 40))[0] == nv.NV_ERR_INVALID_ARGUMENT


def test_what_is_below_an_object_ends_with_it(channel: Channel) -> None:
    channel.schedule()
    channel.driver.free(CLIENT, CLIENT)
    channel.submit(semaphore(RELEASE, 4))
    time.sleep(0.05)
    assert channel.value == 0
    assert (
        channel.driver.control(CLIENT, GROUP, GET_TIMESLICE, bytes(8))[0] == nv.NV_ERR_INVALID_OBJECT_HANDLE
    )


def second_channel(channel: Channel, commands: bytes) -> None:
    """In the same group; it does that and no more."""
    at = 6 * 4096
    channel.guest.put(TABLES + 0x4000 + 8 * 6, struct.pack("<Q", OTHER >> 12 << 8 | 2 << 1 | 1))
    params = bytearray(360)
    struct.pack_into("<QI", params, 8, VA + at, ENTRIES)
    struct.pack_into("<QQII", params, 168, OTHER + 0x1000, 512, 1, 0)
    channel.driver.alloc(CLIENT, GROUP, CHANNEL + 1, CHANNEL, bytes(params))
    channel.guest.put(OTHER + 0x800, commands)
    channel.guest.put(OTHER, struct.pack("<Q", VA + at + 0x800 | (len(commands) // 4) << 42))
    channel.guest.put(OTHER + 0x1000 + PUT, struct.pack("<I", 1))
    channel.card.client.set(DOORBELL, 1)


def test_fault_is_told_and_tried_again_once_a_page_is_there(channel: Channel) -> None:
    """As clc369.h has an entry: the page, by the hub, written to; a replay is a method of any channel's."""
    buffer, page = BASE + (6 << 20), BASE + (7 << 20)
    params = struct.pack(
        "<IIIxxxx256Q", CLIENT, SUBDEVICE, 1 << 20, *(buffer + 4096 * i for i in range(256))
    )
    assert channel.driver.control(CLIENT, SUBDEVICE, REGISTER_FAULT_BUFFER, params)[0] == 0
    channel.schedule()
    to = VA + 5 * 4096
    words = methods(1, 0x180, 4, 1, to >> 32, to & 0xFFFFFFFF) + methods(1, 0x1B0, 1)
    channel.submit(words + methods(1, 0x1B4, 0xCAFE) + semaphore(RELEASE, 5))
    assert wait(lambda: channel.card.client.register(FAULT_PUT) == 1)
    entry = struct.unpack("<8I", channel.guest.get(buffer, 32))
    assert (entry[0], entry[2], entry[3], entry[6]) == (2 << 8, to & 0xFFFFFFFF, to >> 32, 64)
    assert entry[7] == 1 << 31 | 1 << 30 | 1 << 20 | 1 << 16 | 4 << 8 | 1 << 7 | 2
    assert channel.value == 0, "it waits"
    channel.guest.put(TABLES + 0x4000 + 8 * 5, struct.pack("<Q", page >> 12 << 8 | 2 << 1 | 1))
    replays = methods(0, 0x30, 1 << 2, 9 << 27)
    second_channel(channel, replays)
    assert wait(lambda: channel.value == 5)
    assert channel.guest.word(page) == 0xCAFE
