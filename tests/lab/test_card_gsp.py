"""What the emulated GSP says to a driver: its queues, its answers, and what it writes of them."""

import struct
from pathlib import Path

import pytest

from tests.lab.gsp_driver import (
    CONTROL,
    DUP_OBJECT,
    GSP,
    INIT_DONE,
    STATIC_INFO,
    UNLOADING,
    UPDATE_BAR_PDE,
    Driver,
)
from tests.lab.vfio_user import BAR3, Card, Guest, running
from tests.support import rm_numbers as nv

GET_TIMESLICE_OF_NOTHING, UNKNOWN_GET = nv.NVA06C_CTRL_CMD_GET_TIMESLICE, nv.NV2080_CTRL_CMD_FB_GET_INFO_V2
UNKNOWN_SET, CHIP_INFO, BAR_INFO = 0x20800A3A, 0x20800A36, nv.NV2080_CTRL_CMD_BUS_GET_PCI_BAR_INFO
CLIENT, DEVICE = 0xC1E00004, 0xCAF00000


def test_it_says_that_it_is_up_when_booter_has_started_it(card: Card) -> None:
    assert card.client.register(0x111388) == 0
    assert Driver(card.client).boot().function == INIT_DONE
    assert card.client.register(0x111388) & 0x80
    assert card.client.register(0x1FA828) > card.client.register(0x1FA824)


def test_static_info_says_how_much_memory_there_is(card: Card) -> None:
    driver = Driver(card.client)
    driver.boot()
    info = driver.call(STATIC_INFO, bytes(2184))
    assert len(info) == 2184
    assert struct.unpack_from("<Q", info, 1768) == (1 << 30,)
    assert info[36:52] == bytes([0x11, 0x22, 0x33, 0x44] * 3 + [0x11, 0x22, 0x33, 0])


def test_uuid_is_told_as_bytes_and_as_text(card: Card) -> None:
    driver = Driver(card.client)
    driver.boot()

    def told(flags: int) -> bytes:
        params = struct.pack("<II", 0, flags).ljust(268, b"\xff")
        status, answer = driver.control(CLIENT, DEVICE, nv.NV2080_CTRL_CMD_GPU_GET_GID_INFO, params)
        assert status == 0
        [length] = struct.unpack_from("<I", answer, 8)
        return answer[12 : 12 + length]

    text = told(0)
    assert text == b"GPU-11223344-1122-3344-1122-334411223300\0"
    assert bytes.fromhex(text[4:-1].decode().replace("-", "")) == told(2)


def test_answer_is_as_long_as_the_question_even_in_records(card: Card) -> None:
    driver = Driver(card.client)
    driver.boot()
    params = bytes(range(256)) * 700
    status, answer = driver.control(CLIENT, DEVICE, UNKNOWN_SET, params)
    assert (status, answer) == (0, params)


def test_queues_go_round(card: Card) -> None:
    driver = Driver(card.client)
    driver.boot()
    for i in range(200):
        params = struct.pack("<I", i) * (1 + i * 37 % 3000)
        assert driver.control(CLIENT, DEVICE, UNKNOWN_SET, params) == (0, params)


def test_what_gets_something_that_is_not_known_gets_zeros(card: Card) -> None:
    driver = Driver(card.client)
    driver.boot()
    assert driver.control(CLIENT, DEVICE, UNKNOWN_GET, b"\xff" * 64) == (0, bytes(64))


def test_what_real_hardware_says_is_told_from_what_is_made_up(card: Card) -> None:
    driver = Driver(card.client)
    driver.boot()
    driver.control(CLIENT, DEVICE, CHIP_INFO, bytes(64))
    driver.control(CLIENT, DEVICE, UNKNOWN_GET, bytes(64))
    driver.alloc(CLIENT, 0, CLIENT, 0)
    lines = card.reported[-3:]
    assert [line["answer"] for line in lines] == [
        "NV2080_CTRL_CMD_INTERNAL_GPU_GET_CHIP_INFO",
        "NV2080_CTRL_CMD_FB_GET_INFO_V2",
        "NV_VGPU_MSG_FUNCTION_GSP_RM_ALLOC",
    ]
    assert [line["made_up"] for line in lines] == [False, True, False]
    assert all(line["source"] for line in lines)
    assert [line["at"] for line in card.reported] == list(range(1, len(card.reported) + 1))


def test_entry_for_bar_2_is_where_the_driver_looks_for_it(card: Card) -> None:
    driver = Driver(card.client)
    driver.boot()
    tables = 32 << 20
    entries = (tables, tables + 0x1000, tables + 0x2000)
    driver.call(UPDATE_BAR_PDE, struct.pack("<I4xQQ", 1, entries[0] >> 12 << 8 | 2, 47))
    card.client.video(entries[0], struct.pack("<Q", entries[1] >> 12 << 8 | 2))
    card.client.video(entries[1], struct.pack("<Q", entries[2] >> 12 << 8 | 2))
    card.client.video(entries[2], struct.pack("<Q", 0x40000000 >> 13 >> 12 << 8 | 1))
    card.client.write(BAR3, 0x1234, b"through the tables")
    assert (
        card.client.video_read((0x40000000 >> 13) // (2 << 20) * (2 << 20) + 0x1234, 18)
        == b"through the tables"
    )


def test_scheduling_what_there_is_not_is_refused(card: Card) -> None:
    driver = Driver(card.client)
    driver.boot()
    assert (
        driver.control(CLIENT, 0x1234, GET_TIMESLICE_OF_NOTHING, bytes(8))[0]
        == nv.NV_ERR_INVALID_OBJECT_HANDLE
    )
    assert (
        driver.control(CLIENT, 0x1234, GET_TIMESLICE_OF_NOTHING, bytes(4))[0] == nv.NV_ERR_INVALID_ARGUMENT
    )


def test_it_is_suspended_when_the_driver_unloads_and_starts_again(card: Card) -> None:
    driver = Driver(card.client)
    driver.boot()
    driver.call(UNLOADING, bytes(8))
    assert card.client.register(0x110040) & 0x80000000
    card.client.set(0x840040, 0xFF)
    card.client.set(0x840044, 0xFF)
    card.client.set(0x840100, 2)
    assert card.client.register(0x1FA828) == 0
    driver = Driver(card.client)
    assert driver.boot().function == INIT_DONE


def test_request_that_lies_of_its_length_is_no_harm(card: Card) -> None:
    driver = Driver(card.client)
    driver.boot()
    driver.send(CONTROL, struct.pack("<6I", CLIENT, DEVICE, CHIP_INFO, 0, 0xFFFFFFF0, 0))
    driver.send(DUP_OBJECT, b"")
    assert driver.receive().function == DUP_OBJECT
    assert driver.control(CLIENT, DEVICE, BAR_INFO, bytes(200))[0] == 0


def test_fsp_starts_the_gsp_and_knows_no_other_command(tmp_path: Path) -> None:
    with running(tmp_path, 1024, "--chip", "gh100") as card:
        driver = Driver(card.client)
        assert card.client.register(0x200BC) == 0xFF
        assert driver.command_fsp(0x17, bytes(8)) == (0xC0000000, 0x1510DE7E, 0, 0x17, 0xA0)
        assert card.client.register(0x111388) == 0
        assert driver.boot_by_fsp().function == INIT_DONE
        assert card.client.register(0x111388) & 0x80
        driver.call(UNLOADING, bytes(8))
        assert card.client.register(0x110040) & 0x80000000
        assert Driver(card.client).boot_by_fsp().function == INIT_DONE
        assert card.client.register(0x110040) == 0
        assert [line["answer"] for line in card.reported].count("fsp:COT") == 2


@pytest.mark.parametrize("chip", ["ga102", "tu104"])
def test_fwsec_sets_aside_the_region_that_it_is_asked_for(tmp_path: Path, chip: str) -> None:
    """GA102's falcon is told by its DMA registers where its data lies, Turing's by its loader."""
    data = bytearray(0x1000)
    struct.pack_into("<I", data, 0x40 + 0x2C, 0x15)
    struct.pack_into("<I", data, 0x100 + 32, 0x3FE00)
    with running(tmp_path, 1024, "--chip", chip) as card:
        Guest(card.client, 0x40000, 0x1000).put(0x40000, bytes(data))
        if chip == "tu104":
            card.client.set(GSP + 0x1C0, 1 << 24)
            for word in (*[0] * 16, 0x40000, 0):
                card.client.set(GSP + 0x1C4, word)
        else:
            card.client.set(GSP + 0x110, 0x40000 >> 8)
        card.client.set(GSP + 0x100, 2)
        assert card.client.register(0x1FA824) == 0x3FE000
        assert card.client.register(0x1FA828) == 0x3FF000
