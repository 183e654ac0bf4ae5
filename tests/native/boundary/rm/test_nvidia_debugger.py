"""What a debugger reads and writes of a program's memory on the card, with whole cards: all of it comes over,
however long, and the driver sees addresses of mgpud alone.
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.native.nvidia_mediated import Tenant, World, world
from tests.native.rm_params import MIB
from tests.support.rm_numbers import (
    GT200_DEBUGGER,
    NV83DE_CTRL_CMD_DEBUG_READ_MEMORY,
    NV83DE_CTRL_CMD_DEBUG_WRITE_MEMORY,
    NV_ERR_INVALID_ARGUMENT,
)

pytestmark = pytest.mark.native
STATUS_AT, MADE_STATUS_AT = 0x1C, 0x28
DEBUGGED, MEMORY = 0x702, 0xD7
# As the driver of these tests has it (nvidia_on_card.c), and where the tenant's buffer is.
CARD_BYTES, BUFFER, BUFFER_BYTES = 1 << 18, 1 << 40, 1 << 19


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


def debugging(here: World) -> tuple[Tenant, int]:
    """A tenant with a whole card and a debugger's object, and its client."""
    tenant = here.tenant()
    here.engine.whole(tenant.id)
    client = tenant.client()
    params = struct.pack("III", 0, client, DEBUGGED)
    assert tenant.alloc(client, 0xD0, DEBUGGED, GT200_DEBUGGER, params).u32(MADE_STATUS_AT) == 0
    assert tenant.map(tenant.open_uvm(), BUFFER, BUFFER_BYTES) == 0
    return tenant, client


def buffer(tenant: Tenant, size: int, data: bytes = b"") -> bytes:
    """What is there, after `data` was put there."""
    fd = os.open(f"/proc/{tenant.pid}/mem", os.O_RDWR)
    try:
        os.pwrite(fd, data, BUFFER)
        return os.pread(fd, size, BUFFER)
    finally:
        os.close(fd)


def asked(tenant: Tenant, client: int, command: int, length: int, offset: int) -> tuple[int, bytes]:
    params = struct.pack("IIQQ", MEMORY, length, offset, BUFFER)
    answer = tenant.control(client, DEBUGGED, command, params)
    assert not answer.through
    return answer.u32(STATUS_AT), answer.params


@pytest.mark.parametrize("length", [0, 8, 70_000, 200_000])
def test_what_is_written_is_read_back(here: World, length: int) -> None:
    tenant, client = debugging(here)
    data = os.urandom(length)
    buffer(tenant, 0, data)
    same = struct.pack("IIQQ", MEMORY, length, 100, BUFFER)
    assert asked(tenant, client, NV83DE_CTRL_CMD_DEBUG_WRITE_MEMORY, length, 100) == (0, same)
    buffer(tenant, 0, bytes(length + 8))
    assert asked(tenant, client, NV83DE_CTRL_CMD_DEBUG_READ_MEMORY, length, 100) == (0, same)
    assert buffer(tenant, length + 8) == data + bytes(8)


def test_part_that_the_driver_refuses_ends_it(here: World) -> None:
    tenant, client = debugging(here)
    length, offset = 100_000, CARD_BYTES - 80_000
    status, params = asked(tenant, client, NV83DE_CTRL_CMD_DEBUG_READ_MEMORY, length, offset)
    assert status == NV_ERR_INVALID_ARGUMENT
    assert struct.unpack("IIQQ", params) == (MEMORY, length, offset, BUFFER)


def test_more_than_a_debugger_asks_for_is_refused(here: World) -> None:
    tenant, client = debugging(here)
    status, _ = asked(tenant, client, NV83DE_CTRL_CMD_DEBUG_READ_MEMORY, 65 * MIB, 0)
    assert status == NV_ERR_INVALID_ARGUMENT


def test_buffer_that_is_not_there_is_a_bad_address(here: World) -> None:
    tenant, client = debugging(here)
    tenant.unmap(BUFFER, BUFFER_BYTES)
    params = struct.pack("IIQQ", MEMORY, 8, 0, BUFFER)
    assert tenant.control(client, DEBUGGED, NV83DE_CTRL_CMD_DEBUG_WRITE_MEMORY, params).result < 0
