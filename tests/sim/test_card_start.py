"""What a start of a program costs on the card besides its calls, and the objects that only a start makes."""

import struct
import time
from pathlib import Path

from sim.cards import running
from tests.sim.card_protocol import (
    ALLOC,
    ALLOC_STRUCT,
    CHANNEL_GROUP,
    CHANNEL_VOLTA,
    COPY_ENGINE,
    DEVICE,
    GRAPHICS_ENGINE,
    INVALID_PARENT,
    IOCTL,
    OK,
    REQUEST,
    TSG_INFO,
    Client,
    Connection,
    group_params,
    memory_params,
    rm_cmd,
)
from tests.support import rm_numbers as nv

MS = 1_000_000
# Longer than a connection of these tests waits for an answer.
NEVER_US = 60_000_000
MIB, VIRTUAL_MEMORY = 1 << 20, 0x80000
BINARY, COMPUTING, SHARED_CONTEXT = nv.NV2081_BINAPI, nv.NV_CONFIDENTIAL_COMPUTE, nv.FERMI_CONTEXT_SHARE_A
DEBUGGER, VIRTUAL = nv.GT200_DEBUGGER, nv.NV50_MEMORY_VIRTUAL
COMPUTE, COPIES = nv.VOLTA_COMPUTE_A, nv.VOLTA_DMA_COPY_A


def test_device_and_a_context_take_their_time(tmp_path: Path) -> None:
    options = ["--init-us", "30000", "--context-us", "50000"]
    with running(tmp_path, "v100-16", rm_call_us=0, options=options) as card:
        with Connection(card.card_socket) as connection:
            before = time.monotonic_ns()
            client = Client(connection)
            made = time.monotonic_ns()
            assert made - before >= 30 * MS
            client.group(GRAPHICS_ENGINE)
            assert time.monotonic_ns() - made >= 50 * MS
            client.close()


def test_calls_without_compute_start_no_context(tmp_path: Path) -> None:
    with running(tmp_path, "v100-16", options=["--context-us", str(NEVER_US)]) as card:
        with Connection(card.card_socket) as connection:
            client = Client(connection)
            client.group(COPY_ENGINE)
            status, _ = client.alloc(client.root, CHANNEL_GROUP, group_params(GRAPHICS_ENGINE))
            assert status == INVALID_PARENT
            client.close()


def test_other_clients_continue_during_a_start(tmp_path: Path) -> None:
    """The driver's lock is not held: most of that time is the library's own."""
    with running(tmp_path, "v100-16", options=["--context-us", str(NEVER_US)]) as card:
        with Connection(card.card_socket) as one, Connection(card.card_socket) as other:
            waits, works = Client(one), Client(other)
            group = group_params(GRAPHICS_ENGINE)
            outer = ALLOC_STRUCT.pack(waits.root, waits.device, 0, CHANNEL_GROUP, 0, 0, len(group), 0, 0, 0)
            cmd = rm_cmd(ALLOC, len(outer))
            head = REQUEST.pack(IOCTL, 0, 0, cmd, waits.file.id, 0, 1, len(outer), len(group), 0)
            one.socket.send(head + outer + group)
            assert works.control(TSG_INFO, bytes(4), works.group(COPY_ENGINE))[0] == OK
            waits.close()
            works.close()


def test_context_objects_need_a_start(tmp_path: Path) -> None:
    with running(tmp_path, "v100-16", rm_call_us=0) as card, Connection(card.card_socket) as connection:
        client = Client(connection)
        group = client.group()
        channel = client.made(group, CHANNEL_VOLTA)
        vaspace = client.made(client.device, nv.FERMI_VASPACE_A, bytes(48))
        given = {
            VIRTUAL: memory_params(MIB, flags=VIRTUAL_MEMORY),
            SHARED_CONTEXT: struct.pack("<3I", vaspace, 0, 0),
            DEBUGGER: struct.pack("<3I", 0, client.root, channel),
        }
        places = {
            client.root: (COMPUTING,),
            client.device: (DEBUGGER, VIRTUAL),
            client.subdevice: (BINARY,),
            group: (SHARED_CONTEXT,),
            channel: (COMPUTE, COPIES),
        }
        for parent, classes in places.items():
            for class_id in classes:
                client.made(parent, class_id, given.get(class_id, b""))
                elsewhere = client.device if parent == channel else channel
                assert client.alloc(elsewhere, class_id)[0] == INVALID_PARENT
        assert client.alloc(channel, DEVICE, bytes(56))[0] == INVALID_PARENT
        client.close()
