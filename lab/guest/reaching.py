"""Memory made known to RM for other devices' drivers, as libcuda does it, and what such a driver of ours is
given (lab/reached).
"""

import os
import struct
from pathlib import Path

from lab.tests.nv import DEVICE, MIB, SUBDEVICE, Client, mapped, of_card, vaspace
from tests.gpu import rm
from tests.support.rm_numbers import (
    FERMI_VASPACE_A,
    NV50_THIRD_PARTY_P2P,
    NV503C_CTRL_CMD_REGISTER_PID,
    NV503C_CTRL_CMD_REGISTER_VA_SPACE,
    NV503C_CTRL_CMD_REGISTER_VIDMEM,
)

DRIVER = Path("/proc/reached")
BY_BAR1, ADDRESS, SIZE, PATTERN = 1, 0x7F0000000000, 2 * MIB, 0x5EED_0F_A_BEEF


def asked() -> tuple[int, int]:
    """The driver's answer for this process, and the first word that it read."""
    DRIVER.write_text(f"{ADDRESS:x} {SIZE:x}")
    status, pages, first, _ = DRIVER.read_text().split()
    assert int(pages) == (0 if int(status) else SIZE >> 16)
    return int(status), int(first, 16)


def taken_back() -> bool:
    return DRIVER.read_text().split()[3] == "1"


def filled(client: Client) -> int:
    """Memory that begins with the pattern."""
    handle = client.memory(SIZE)
    view, _ = mapped(client, handle, of_card(client))
    view[:8] = struct.pack("<Q", PATTERN)
    view.close()
    return handle


def make(client: Client) -> tuple[int, int]:
    """RM's status, and the object."""
    return client.alloc(SUBDEVICE, NV50_THIRD_PARTY_P2P, struct.pack("<I", BY_BAR1))


def known(client: Client, thing: int, memory: int) -> list[int]:
    """RM's statuses as the memory is made known through that object, an address space first."""
    addresses = client.must_alloc(DEVICE, FERMI_VASPACE_A, vaspace())
    of_addresses, _ = client.control(
        thing, NV503C_CTRL_CMD_REGISTER_VA_SPACE, struct.pack("<I4xQ", addresses, 0)
    )
    said = struct.pack("<I4xQQQ", memory, ADDRESS, SIZE, 0)
    return [of_addresses, client.control(thing, NV503C_CTRL_CMD_REGISTER_VIDMEM, said)[0]]


def made_by_a_child(client: Client) -> int:
    """The object, by a call of another process on this one's file, as of a supervisor's."""
    client.next += 1
    handle = client.next
    if (child := os.fork()) == 0:
        call = rm.alloc(client.root, SUBDEVICE, handle, NV50_THIRD_PARTY_P2P, struct.pack("<I", BY_BAR1))
        os._exit(1 if client.make(call) else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return handle


def name_process(client: Client, thing: int) -> int:
    """RM's status."""
    return client.control(thing, NV503C_CTRL_CMD_REGISTER_PID, struct.pack("<I", client.root))[0]
