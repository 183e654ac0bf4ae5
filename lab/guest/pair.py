"""Cards of one client, as libcuda makes peers of two: natively, and in a container."""

import os
import struct
from contextlib import suppress
from typing import Any

from lab.tests.loaded import params_bytes
from lab.tests.nv import COMPOSE, MIB, SHARE_ALL, SPACE, Client, Uvm, memory, vaspace
from tests.gpu import rm
from tests.support.rm_numbers import (
    NV0000_CTRL_CMD_GPU_GET_UUID_FROM_GPU_ID,
    NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS_MATRIX,
    NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS_V2,
    NV50_P2P,
    UVM_ENABLE_PEER_ACCESS,
)

MOST_CARDS, P2P_BYTES = 8, 72
# In the parameters of the two questions.
COUNT_AT, CAPS_AT, OTHERS_AT, MATRIX_AT = 0x80, 0x84, 0x28, 0x48
DEVICES, SUBDEVICES, SPACES, PEERS = 0xBEEF1000, 0xBEEF2000, 0xBEEF3000, 0xBEEF5000
THERE, PIECE, NOBODY = 0x300000000, 64 * MIB, 0x7FFF00


class Pair:
    """A client with a device and a subdevice of each card that its process has, two or one."""

    def __init__(self) -> None:
        self.nodes = []
        for minor in range(MOST_CARDS):
            with suppress(OSError):
                self.nodes.append(rm.node(f"nvidia{minor}"))
        self.client = Client(attach=False)
        self.numbers = [number for number in range(MOST_CARDS) if self._made(number)]
        known = self.client.gpu_ids()
        self.ids = [known[number] for number in self.numbers]
        self.subdevices = [SUBDEVICES + number for number in self.numbers]
        self.devices = [DEVICES + number for number in self.numbers]

    def _made(self, number: int) -> bool:
        own = struct.pack("<II", number, self.client.root).ljust(56, b"\0")
        made = self.client.alloc(self.client.root, rm.DEVICE, own, DEVICES + number)[0] == 0
        return made and self.subdevice(number) == 0

    def subdevice(self, number: int) -> int:
        return self.client.alloc(DEVICES + number, rm.SUBDEVICE, bytes(4), SUBDEVICES + number)[0]

    def end_subdevice(self, number: int) -> int:
        return self.client.free(SUBDEVICES + number, DEVICES + number)

    def reach(self, one: int, other: int) -> list[list[int]]:
        """Status, and what two ids' cards are to each other; by either question."""
        caps = bytearray(params_bytes("NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS_V2"))
        struct.pack_into("<II", caps, 0, one, other)
        struct.pack_into("<I", caps, COUNT_AT, 2)
        matrix = bytearray(params_bytes("NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS_MATRIX"))
        struct.pack_into("<III", matrix, 0, 1, 1, one)
        struct.pack_into("<I", matrix, OTHERS_AT, other)
        found = []
        for cmd, params, at in (
            (NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS_V2, caps, CAPS_AT),
            (NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS_MATRIX, matrix, MATRIX_AT),
        ):
            status, told = self.client.control(self.client.root, cmd, bytes(params))
            found.append([status, struct.unpack_from("<I", told, at)[0]])
        return found

    def peers(self, one: int, other: int, parent: int = 0, handle: int = PEERS) -> int:
        """one, other: subdevices."""
        params = struct.pack("<II", one, other).ljust(P2P_BYTES, b"\0")
        return self.client.alloc(parent or self.client.root, NV50_P2P, params, handle)[0]

    def share_peers(self) -> int:
        return self.client.share(PEERS, SHARE_ALL, action=COMPOSE)

    def end_peers(self) -> int:
        return self.client.free(PEERS, self.client.root)

    def uuid(self, gpu_id: int) -> bytes:
        params = struct.pack("<II", gpu_id, 2).ljust(268, b"\0")
        status, answer = self.client.control(
            self.client.root, NV0000_CTRL_CMD_GPU_GET_UUID_FROM_GPU_ID, params
        )
        assert status == 0, hex(status)
        return answer[8:24]

    def close(self) -> None:
        self.client.close()
        for node in self.nodes:
            os.close(node)


class SharedSpace:
    """A file of nvidia-uvm with an address space on each card of a pair, and memory of the last one."""

    def __init__(self, pair: Pair) -> None:
        self.pair, self.uvm = pair, Uvm()
        self.uuids = [pair.uuid(gpu_id) for gpu_id in pair.ids]
        assert self.uvm.hold_memory() == 0
        for number, uuid in zip(pair.numbers, self.uuids, strict=True):
            assert pair.client.alloc(DEVICES + number, SPACE, vaspace(), SPACES + number)[0] == 0
            assert self.uvm.register_gpu(uuid, pair.client) == 0
            assert self.uvm.register_space(uuid, pair.client, SPACES + number) == 0

        self.memory = pair.client.must_alloc(pair.devices[-1], rm.MEMORY, memory(PIECE))
        assert self.uvm.create_range(THERE, PIECE) == 0

    def enable(self, one: bytes, other: bytes) -> int:
        return self.uvm.call(UVM_ENABLE_PEER_ACCESS, bytearray(one + other + bytes(4)), 32)

    def map_on_first(self) -> int:
        return self.uvm.map_external(self.uuids[0], self.pair.client, self.memory, THERE, PIECE)

    def close(self) -> None:
        self.uvm.close()


def tried(all_cards: list[tuple[int, bytes]]) -> dict[str, Any]:
    """What a container with some of these cards, by id and UUID, comes to with them and with the others."""
    pair = Pair()
    shared = SharedSpace(pair)
    others = [card for card in all_cards if card[0] not in pair.ids]
    strange_id, strange_uuid = others[0] if others else (NOBODY, bytes(16))
    return {
        "cards": len(pair.numbers),
        "reach": pair.reach(pair.ids[0], pair.ids[-1]),
        "stranger": [status for status, _ in pair.reach(pair.ids[0], strange_id)],
        "made": pair.peers(pair.subdevices[0], pair.subdevices[-1]),
        "half": pair.peers(pair.subdevices[0], 0, handle=PEERS + 1),
        "strangers_memory": shared.enable(shared.uuids[0], strange_uuid),
        "enabled": shared.enable(shared.uuids[0], shared.uuids[-1]),
        "mapped": shared.map_on_first(),
    }
