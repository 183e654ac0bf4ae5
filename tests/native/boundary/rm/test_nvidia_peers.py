"""A container of one card has no peers, and whatever a program asks before it tries says so. Several cards'
are in tests/hostile/test_peers.py.
"""

import struct

import pytest

from tests.native.nvidia_mediated import Answer, Tenant, World
from tests.native.rm_params import DEVICE, ROOT
from tests.support import rm_numbers as nv

OK, INVALID_ARGUMENT, INVALID_CLASS = 0, nv.NV_ERR_INVALID_ARGUMENT, nv.NV_ERR_INVALID_CLASS
INVALID_CLIENT, INVALID_HANDLE = nv.NV_ERR_INVALID_CLIENT, nv.NV_ERR_INVALID_OBJECT_HANDLE
STATUS, ALLOC_STATUS = 0x1C, 0x28
PROBED_IDS, P2P_CAPS_V2 = nv.NV0000_CTRL_CMD_GPU_GET_PROBED_IDS, nv.NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS_V2
P2P_MATRIX = nv.NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS_MATRIX
FABRIC_STATUS = nv.NV0000_CTRL_CMD_SYSTEM_GET_FABRIC_STATUS
FABRIC_PROBE = nv.NV2080_CTRL_CMD_GET_GPU_FABRIC_PROBE_INFO
NVLINK_CAPS = nv.NV2080_CTRL_CMD_NVLINK_GET_NVLINK_CAPS
NVLINK_STATUS, CLASSES = nv.NV2080_CTRL_CMD_NVLINK_GET_NVLINK_STATUS, nv.NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2
# ctrl0000system.h: nothing is supported, no card has a number of another's; a system without a fabric.
NOT_SUPPORTED, NO_PEER, SKIP = nv.NV0000_P2P_CAPS_STATUS_NOT_SUPPORTED, 0xFF, 1
PEERS = (nv.NV50_P2P, nv.NV50_THIRD_PARTY_P2P, 0xF8, 0xF9, 0xFB, 0xFC, 0xFD)
CAPS_BYTES, CLASSES_BYTES = 8348, 804


def asked(tenant: Tenant, client: int, thing: int, command: int, params: bytes) -> Answer:
    answer = tenant.control(client, thing, command, params)
    assert (answer.result, answer.through) == (0, False)
    return answer


def card_of(tenant: Tenant, client: int) -> int:
    answer = asked(tenant, client, client, PROBED_IDS, bytes(384))
    return int.from_bytes(answer.params[:4], "little")


@pytest.mark.parametrize("size", [4252, CAPS_BYTES])
def test_peer_access_between_cards_is_refused(here: World, size: int) -> None:
    tenant, client = here.tenant_client()
    card = card_of(tenant, client)
    params = struct.pack("2I", card, card).ljust(128, b"\0") + struct.pack("I", 2)
    answer = asked(tenant, client, client, P2P_CAPS_V2, params.ljust(size, b"\x77"))
    assert answer.u32(STATUS) == OK
    assert answer.params[: len(params)] == params
    assert answer.params[0x84:0x90] == bytes(12)
    assert answer.params[0x90:0x99] == bytes([NOT_SUPPORTED] * 9)
    assert answer.params[0x9C:] == bytes([NO_PEER] * (size - 0x9C))
    both = struct.pack("II8I8I", 1, 1, card, *[0] * 7, card, *[0] * 7)
    matrix = asked(tenant, client, client, P2P_MATRIX, both.ljust(1352, b"\x77"))
    assert (matrix.u32(STATUS), matrix.params) == (OK, both.ljust(1352, b"\0"))


def test_peer_query_names_granted_cards_only(here: World) -> None:
    tenant, client = here.tenant_client()
    card, size = card_of(tenant, client), CAPS_BYTES
    for count, ids in ((2, (card, card + 1)), (0, (card, card)), (33, (card, card))):
        params = struct.pack("2I", *ids).ljust(128, b"\0") + struct.pack("I", count)
        assert asked(tenant, client, client, P2P_CAPS_V2, params.ljust(size, b"\0")).u32(STATUS) == (
            INVALID_ARGUMENT
        )
    for counts in ((0, 0), (9, 0), (1, 9), (1, 1)):
        both = struct.pack("II8I8I", *counts, card, *[0] * 7, card + 1, *[0] * 7).ljust(1352, b"\0")
        assert asked(tenant, client, client, P2P_MATRIX, both).u32(STATUS) == INVALID_ARGUMENT
    # A group with itself.
    alone = struct.pack("III", 1, 0, card).ljust(1352, b"\0")
    assert asked(tenant, client, client, P2P_MATRIX, alone).u32(STATUS) == OK


def test_fabric_and_links_are_reported_absent(here: World) -> None:
    tenant, client = here.tenant_client()
    status = asked(tenant, client, client, FABRIC_STATUS, bytes(4))
    assert (status.u32(STATUS), status.params) == (OK, struct.pack("I", SKIP))
    for command, size in ((FABRIC_PROBE, 56), (NVLINK_CAPS, 48), (NVLINK_STATUS, 13344)):
        answer = asked(tenant, client, 0xD1, command, b"\x77" * size)
        assert (answer.u32(STATUS), answer.params) == (OK, bytes(size))
        assert asked(tenant, client, 0xD0, command, bytes(size)).u32(STATUS) == INVALID_HANDLE


def test_classes_of_peers_and_fabrics_are_neither_listed_nor_made(here: World) -> None:
    tenant, client = here.tenant_client()
    answer = asked(tenant, client, 0xD0, CLASSES, bytes(CLASSES_BYTES))
    count, *classes = struct.unpack(f"{CLASSES_BYTES // 4}I", answer.params)
    assert answer.u32(STATUS) == OK
    assert count > 20
    assert 0 not in classes[:count]
    assert not any(classes[count:])
    assert nv.KEPLER_CHANNEL_GROUP_A in classes
    assert not set(PEERS) & set(classes)
    for class_id in PEERS:
        made = tenant.alloc(client, 0xD0, 0x100, class_id, bytes(128))
        # In these words libcuda does without it.
        words = nv.NV_ERR_NOT_SUPPORTED if class_id == nv.NV50_THIRD_PARTY_P2P else INVALID_CLASS
        assert made.u32(ALLOC_STATUS) == words


@pytest.mark.parametrize("field", [4, 8])
def test_device_cannot_share_an_address_space_of_another_client(here: World, field: int) -> None:
    """hClientShare and hTargetClient: RM looks for the client, and not for whose it is."""
    tenant, other = here.tenant(), here.tenant()
    its = other.client()
    client = tenant.alloc(0, 0, 0, ROOT).u32(8)
    params = bytearray(56)
    for named, expected in ((its, INVALID_CLIENT), (client + 77, INVALID_CLIENT), (client, OK)):
        struct.pack_into("I", params, field, named)
        assert tenant.alloc(client, client, 0xD0, DEVICE, bytes(params)).u32(ALLOC_STATUS) == expected
