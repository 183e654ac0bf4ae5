"""The escapes and controls of the simulated card, and what it does with malformed calls."""

import errno
import os
import struct
from collections.abc import Callable

import pytest

from sim.cards import CardProcess
from tests.sim.card_protocol import (
    ATTACH_GPUS,
    CARD,
    CARD_INFO,
    CHANNEL_GROUP,
    CHECK_VERSION,
    CONTROL_STRUCT,
    CTL,
    INVALID_ARGUMENT,
    IOCTL,
    MEMORY,
    NOT_FOUND,
    NOT_SUPPORTED,
    OK,
    OPEN,
    REGISTER_FD,
    REPLY,
    REQUEST,
    SYS_PARAMS,
    UVM,
    WAIT_OPEN,
    Client,
    Connection,
    rm_cmd,
)
from tests.support import rm_numbers as nv

MIB = 1 << 20
NewClient = Callable[..., Client]

ATTACHED_IDS, ID_INFO = nv.NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS, nv.NV0000_CTRL_CMD_GPU_GET_ID_INFO
NAME, GID = nv.NV2080_CTRL_CMD_GPU_GET_NAME_STRING, nv.NV2080_CTRL_CMD_GPU_GET_GID_INFO
PIDS, PID_INFO = nv.NV2080_CTRL_CMD_GPU_GET_PIDS, nv.NV2080_CTRL_CMD_GPU_GET_PID_INFO
FB_INFO, ARCH = nv.NV2080_CTRL_CMD_FB_GET_INFO_V2, nv.NV2080_CTRL_CMD_MC_GET_ARCH_INFO
PCI, MAKE_REALTIME = nv.NV2080_CTRL_CMD_BUS_GET_PCI_INFO, nv.NVA06C_CTRL_CMD_MAKE_REALTIME


def fb_info(client: Client, *indices: int) -> list[int]:
    """KiB by index."""
    params = struct.pack("<I", len(indices)) + b"".join(struct.pack("<II", i, 0xDEAD) for i in indices)
    status, reply = client.control(FB_INFO, params.ljust(1028, b"\0"))
    assert status == OK
    return [struct.unpack_from("<I", reply, 8 + 8 * i)[0] for i in range(len(indices))]


def pids(client: Client, class_id: int) -> list[int]:
    status, reply = client.control(PIDS, struct.pack("<III", 0, class_id, 99).ljust(3812, b"\0"))
    assert status == OK
    count = struct.unpack_from("<I", reply, 8)[0]
    return sorted(struct.unpack_from(f"<{count}I", reply, 12))


def pid_bytes(client: Client, *asked: int) -> list[tuple[int, int]]:
    """(result, private bytes) of each process."""
    entries = b"".join(struct.pack("<IIII", pid, 0, 0, 0).ljust(72, b"\0") for pid in asked)
    status, reply = client.control(PID_INFO, struct.pack("<II", len(asked), 0) + entries.ljust(14400, b"\0"))
    assert status == OK
    return [
        (
            struct.unpack_from("<I", reply, 8 + 72 * i + 8)[0],
            struct.unpack_from("<Q", reply, 8 + 72 * i + 16)[0],
        )
        for i in range(len(asked))
    ]


def test_version(connection: Connection) -> None:
    file = connection.open(CTL).id
    query = connection.escape(file, CHECK_VERSION, struct.pack("<II64s", ord("2"), 0, b""))
    _, reply, version = struct.unpack("<II64s", query)
    assert (reply, version.rstrip(b"\0")) == (1, b"580.95.05")
    assert connection.escape(file, CHECK_VERSION, struct.pack("<II64s", 0, 0, version))[4] == 1
    with pytest.raises(OSError, match="Invalid argument"):
        connection.escape(file, CHECK_VERSION, struct.pack("<II64s", 0, 0, b"535.1"))


def test_card_info(card: CardProcess, connection: Connection) -> None:
    file = connection.open(CTL).id
    reply = connection.escape(file, CARD_INFO, bytes(72 * 32))
    rows = [reply[72 * i : 72 * (i + 1)] for i in range(32)]
    assert [row[0] for row in rows] == [1] * 3 + [0] * 29
    for known, row in zip(card.cards(), rows, strict=False):
        assert struct.unpack_from("<I", row, 16)[0] == known.gpu_id
        assert struct.unpack_from("<I", row, 56)[0] == known.minor
        assert f"00000000:{row[8]:02X}:{row[9]:02X}.{row[10]}" == known.pci
    with pytest.raises(OSError, match="Invalid argument"):
        connection.escape(file, CARD_INFO, bytes(72 * 2))


def test_start_up_escapes(card: CardProcess, connection: Connection) -> None:
    control, node = connection.open(CTL), connection.open(CARD, 1)
    connection.escape(control.id, SYS_PARAMS, bytes(8))
    connection.escape(control.id, SYS_PARAMS, struct.pack("<Q", 128 * MIB))
    connection.escape(control.id, SYS_PARAMS, struct.pack("<Q", 128 * MIB))
    for later in (0, 256 * MIB):
        with pytest.raises(OSError, match="busy"):
            connection.escape(control.id, SYS_PARAMS, struct.pack("<Q", later))
    connection.escape(node.id, REGISTER_FD, bytes(4), aux=control.id)
    with pytest.raises(OSError, match="Invalid argument"):
        connection.escape(node.id, REGISTER_FD, bytes(4), aux=control.id)
    assert connection.escape(node.id, WAIT_OPEN, b"\xff" * 8) == bytes(8)
    gpu_id = card.cards()[2].gpu_id.to_bytes(4, "little")
    assert connection.escape(control.id, ATTACH_GPUS, gpu_id) == gpu_id
    with pytest.raises(OSError, match="Invalid argument"):
        connection.escape(control.id, ATTACH_GPUS, (0x7777).to_bytes(4, "little"))


def test_uvm_initialize(connection: Connection) -> None:
    file = connection.open(UVM).id
    assert connection.ioctl(file, 0x30000001, bytes(8) + b"\xff" * 8)[0][8:12] == bytes(4)
    with pytest.raises(OSError, match="Invalid argument"):
        connection.ioctl(file, 51, bytes(64))


def test_identity_controls(card: CardProcess, new_client: NewClient) -> None:
    for known in card.cards():
        client = new_client(known.index)
        status, ids = client.control(ATTACHED_IDS, bytes(128), client.root)
        assert status == OK
        assert struct.unpack("<32I", ids)[:4] == (*(c.gpu_id for c in card.cards()), 0xFFFFFFFF)
        status, info = client.control(ID_INFO, struct.pack("<I", known.gpu_id).ljust(40, b"\0"), client.root)
        assert (status, struct.unpack_from("<I", info, 8)[0]) == (OK, known.index)
        assert client.control(NAME, bytes(132))[1][4:68].rstrip(b"\0").decode() == known.name
        assert client.control(GID, bytes(268))[1][12:].rstrip(b"\0").decode() == known.uuid
        status, binary = client.control(GID, struct.pack("<III", 0, 2, 0).ljust(268, b"\0"))
        assert binary[12:28].hex() == known.uuid.removeprefix("GPU-").replace("-", "")
        assert struct.unpack_from("<I", client.control(ARCH, bytes(16))[1])[0] == known.arch
        assert struct.unpack_from("<H", client.control(PCI, bytes(16))[1])[0] == 0x10DE


def test_memory_view_follows_the_heap(new_client: NewClient) -> None:
    client = new_client()
    total = 16160 << 10
    assert fb_info(client, 7, 8, 9, 0x20, 0x16, 0x12, 0x7F) == [total] * 6 + [0]
    client.memory(100 * MIB)
    assert fb_info(client, 8, 0x16) == [total, total - (100 << 10)]
    assert client.control(FB_INFO, struct.pack("<I", 129).ljust(1028, b"\0"))[0] == INVALID_ARGUMENT


def test_processes_by_class_and_card(new_client: NewClient) -> None:
    """A channel group names its process; GET_PID_INFO counts memory objects and nothing for the group."""
    first, again, second = new_client(tgid=11), new_client(tgid=11), new_client(tgid=12)
    elsewhere = new_client(1, tgid=13)
    assert pids(first, CHANNEL_GROUP) == []
    for client in (first, again, second, elsewhere):
        client.group()
    second.memory(10 * MIB)
    assert pids(first, CHANNEL_GROUP) == [11, 12]
    assert pids(elsewhere, CHANNEL_GROUP) == [13]
    assert pids(first, MEMORY) == []
    assert pid_bytes(first, 11, 12, 13, 99) == [
        (OK, 0),
        (OK, 10 * MIB),
        (OK, 0),
        (OK, 0),
    ]


def test_refused_controls(new_client: NewClient) -> None:
    client = new_client()
    group = client.group()
    assert client.control(nv.NV2080_CTRL_CMD_GR_GET_NUM_TPCS_FOR_GPC, bytes(8))[0] == NOT_SUPPORTED
    assert client.control(NAME, bytes(132), client.root)[0] == NOT_SUPPORTED
    assert client.control(NAME, bytes(131))[0] == INVALID_ARGUMENT
    assert client.control(NAME, bytes(132), 0x4711)[0] == NOT_FOUND
    assert client.control(MAKE_REALTIME, bytes(4), group)[0] == INVALID_ARGUMENT
    assert client.control(MAKE_REALTIME, bytes(1), group)[0] == NOT_SUPPORTED
    # A size is looked at before the object.
    assert client.control(NAME, bytes(131), 0x4711)[0] == INVALID_ARGUMENT


def test_params_size_must_say_the_truth(connection: Connection, new_client: NewClient) -> None:
    client = new_client()
    outer = CONTROL_STRUCT.pack(client.root, client.subdevice, NAME, 0, 0, 132, 0)
    reply, _ = connection.ioctl(client.file.id, rm_cmd(0x2A, 32), outer, bytes(16))
    assert CONTROL_STRUCT.unpack(reply)[6] == INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("node", "nr", "size"),
    [
        (CTL, 0x2B, 40),
        (CTL, 0x29, 12),
        (CTL, 211, 16),
        (CTL, 0xFF, 8),
        (CARD, 0x2B, 48),
        (CARD, CARD_INFO, 72 * 32),
        (CARD, CHECK_VERSION, 72),
        (CARD, SYS_PARAMS, 8),
        (CARD, ATTACH_GPUS, 4),
        (CTL, CARD_INFO, 71),
    ],
)
def test_calls_the_driver_refuses(connection: Connection, node: int, nr: int, size: int) -> None:
    file = connection.open(node).id
    with pytest.raises(OSError, match="Invalid argument"):
        connection.escape(file, nr, bytes(size))


def test_size_in_the_command_is_the_outer_size(connection: Connection) -> None:
    file = connection.open(CTL).id
    with pytest.raises(OSError, match="Invalid argument"):
        connection.ioctl(file, rm_cmd(SYS_PARAMS, 8), bytes(4))


def test_open_of_what_is_not_there(connection: Connection) -> None:
    for node, minor, error in ((CARD, 3, errno.ENODEV), (7, 0, errno.EINVAL)):
        with pytest.raises(OSError, match=os.strerror(error)):
            connection.open(node, minor)
    with pytest.raises(OSError, match="Bad file descriptor"):
        connection.escape(1 << 40, SYS_PARAMS, bytes(8))


@pytest.mark.parametrize(
    "packet",
    [
        lambda _file: b"x",
        lambda _file: REQUEST.pack(OPEN, 0, 0, 0, 0, 0, 1, 8, 0, 0),
        lambda file: REQUEST.pack(IOCTL, 0, 0, 0, file, 0, 1, 0xFFFFFFFF, 1, 0),
        lambda file: REQUEST.pack(IOCTL, 0, 0, 0, file, 0, 1, 57344, 1, 0) + bytes(57345),
        lambda _file: REQUEST.pack(99, 0, 0, 0, 0, 0, 1, 0, 0, 0),
        lambda _file: bytes(60000),
    ],
    ids=["short", "payload missing", "overflow", "too large", "unknown op", "long"],
)
def test_malformed_packets_are_answered(connection: Connection, packet: Callable[[int], bytes]) -> None:
    connection.socket.send(packet(connection.open(CTL).id))
    assert REPLY.unpack_from(connection.socket.recv(65536))[0] == errno.EINVAL
    assert connection.open(CTL).id > 0
