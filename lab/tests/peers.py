"""Two cards as peers: what NVIDIA's driver makes of them, and what a container has of it under mgpu.

Whether a card's bus carries what another reads and writes, the GSP says, and that it does is made up here.
"""

from lab.claims import decides
from lab.guest import boxes
from lab.guest.pair import PEERS, PIECE, Pair, SharedSpace
from lab.tests.answers import TOLD
from lab.tests.nv import MIB, Client
from lab.tests.under_mgpu import LIMIT_S, free_at_rest, until
from tests.support.rm_numbers import (
    NV_ERR_INSERT_DUPLICATE_NAME,
    NV_ERR_INVALID_ARGUMENT,
    NV_ERR_INVALID_CLASS,
    NV_ERR_INVALID_DEVICE,
    NV_ERR_INVALID_OBJECT_PARENT,
    NV_ERR_RESOURCE_LOST,
)

# ctrl0000system.h: reads and writes over the bus, by mailboxes.
OVER_BUS = 0x47
# Asked once, when nvidia-uvm or a program first asks what two cards are to each other.
CAPS = "NV2080_CTRL_CMD_INTERNAL_GET_PCIE_P2P_CAPS"
CARRIED = {
    "NV2080_CTRL_CMD_INTERNAL_HSHUB_PEER_CONN_CONFIG": TOLD,
    "NV2080_CTRL_CMD_INTERNAL_BUS_SETUP_P2P_MAILBOX_LOCAL": "RM hands its tag on to the other card's GSP",
    "NV2080_CTRL_CMD_INTERNAL_BUS_SETUP_P2P_MAILBOX_REMOTE": TOLD,
    "NV2080_CTRL_CMD_INTERNAL_BUS_DESTROY_P2P_MAILBOX": TOLD,
}


def free_bytes(outside: list[Client]) -> list[int]:
    return [client.free_bytes() for client in outside]


def are_at_least(now: list[int], before: list[int]) -> bool:
    return all(one >= was for one, was in zip(now, before, strict=True))


@decides(
    "NV50_P2P takes no memory of a card, and ends with either subdevice; its handle is taken until FREE",
    cards=2,
    long=True,
    whatever=CARRIED,
)
def objects_of_two() -> None:
    outside = [Client(card=number) for number in range(2)]
    pair, before = Pair(), free_bytes(outside)
    assert pair.peers(*pair.subdevices) == 0
    assert free_bytes(outside) == before
    one, other = pair.subdevices
    ends = [(one, 0), (0, other), (one, pair.devices[1])]
    strange = [pair.peers(*two, handle=PEERS + 1) for two in ends]
    assert strange == [NV_ERR_INVALID_ARGUMENT] * 3, strange
    assert pair.peers(one, other, parent=pair.devices[0], handle=PEERS + 1) == NV_ERR_INVALID_OBJECT_PARENT
    for number in pair.numbers:
        assert pair.share_peers() == 0
        assert pair.end_subdevice(number) == 0
        assert pair.share_peers() == NV_ERR_RESOURCE_LOST
        assert pair.subdevice(number) == 0
        assert pair.peers(one, other) == NV_ERR_INSERT_DUPLICATE_NAME
        assert pair.end_peers() == 0
        assert pair.peers(one, other) == 0
    assert pair.end_peers() == 0
    assert free_bytes(outside) == before
    pair.close()


@decides(cards=2, long=True, rests_on=(CAPS,))
def memory_lies_where_it_was_made() -> None:
    """nvidia-uvm makes RM's peers itself. What it maps on another card is missed on its own."""
    outside = [Client(card=number) for number in range(2)]
    pair = Pair()
    before = free_bytes(outside)
    shared = SharedSpace(pair)
    assert pair.reach(*pair.ids) == [[0, OVER_BUS]] * 2
    assert shared.map_on_first() == NV_ERR_INVALID_DEVICE
    assert shared.enable(*shared.uuids) == 0
    assert shared.map_on_first() == 0
    tables, missed = (was - now for was, now in zip(before, free_bytes(outside), strict=True))
    assert (tables < MIB, PIECE <= missed < PIECE + MIB) == (True, True), (tables, missed)
    shared.close()
    pair.close()


def all_cards(outside: list[Client]) -> list[str]:
    """By id and UUID, as the words of lab.guest.inside."""
    ids = outside[0].gpu_ids()
    return [
        str(word)
        for number, client in enumerate(outside)
        for word in (ids[number], int.from_bytes(client.uuid()))
    ]


@decides(cards=2, long=True, limit_s=LIMIT_S, rests_on=(CAPS,))
def cards_of_a_container_are_peers() -> None:
    outside = [Client(card=number) for number in range(2)]
    product = boxes.product()
    before = [free_at_rest(product, client) for client in outside]
    words = boxes.inside("pair", *all_cards(outside))
    with product.container(words, memory_mib=2048, cards="0,1") as box:
        said = boxes.told(box)
        assert said == {
            "cards": 2,
            "reach": [[0, OVER_BUS]] * 2,
            "stranger": [NV_ERR_INVALID_ARGUMENT] * 2,
            "made": 0,
            "half": NV_ERR_INVALID_ARGUMENT,
            "strangers_memory": NV_ERR_INVALID_DEVICE,
            "enabled": 0,
            "mapped": 0,
        }, said
        missed = sorted(was - now for was, now in zip(before, free_bytes(outside), strict=True))
        used = sorted(int(card["used_bytes"]) for card in boxes.listed(box)["cards"])
        print(f"missed on the cards: {missed}, charged: {used}")
        assert (used[0] < MIB, PIECE <= used[1] < PIECE + MIB) == (True, True), used
        assert missed[1] >= PIECE > missed[0], missed
    until(lambda: are_at_least(free_bytes(outside), before), "what it had is not free again")


@decides(cards=2, long=True, limit_s=LIMIT_S, rests_on=(CAPS,))
def cards_of_two_containers_are_no_peers() -> None:
    outside = [Client(card=number) for number in range(2)]
    product = boxes.product()
    words = boxes.inside("pair", *all_cards(outside))
    with (
        product.container(words, memory_mib=512, cards="0") as one,
        product.container(words, memory_mib=512, cards="1") as other,
    ):
        for box in (one, other):
            said = boxes.told(box)
            assert said == {
                "cards": 1,
                "reach": [[0, 0]] * 2,
                "stranger": [NV_ERR_INVALID_ARGUMENT] * 2,
                "made": NV_ERR_INVALID_CLASS,
                "half": NV_ERR_INVALID_CLASS,
                "strangers_memory": NV_ERR_INVALID_DEVICE,
                "enabled": NV_ERR_INVALID_DEVICE,
                "mapped": 0,
            }, said
