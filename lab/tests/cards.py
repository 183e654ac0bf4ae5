"""Several cards: how they are numbered, and that each is counted by itself."""

import os
import struct

from lab.claims import decides
from lab.tests.answers import LINKED
from lab.tests.nv import MIB, Client, Uvm
from tests.gpu import rm
from tests.support.rm_numbers import NV_ESC_CARD_INFO

OF_EACH = "what is taken of one card is missed on it alone, and GET_PID_INFO counts it there alone"
NUMBERS = (
    "a card's minor is its place by PCI address, and RM's number of it its place in the order of attaching"
)
# nv_ioctl_card_info_t
CARD_BYTES, MOST = 72, 32
PIECE = 64 * MIB


def numbered(count: int) -> None:
    client = Client(attach=False)
    listed = rm.Call(NV_ESC_CARD_INFO, bytearray(CARD_BYTES * MOST), bytearray(), -1)
    assert rm.on_file(client.ctl, listed) == 0
    cards = [listed.outer[at : at + CARD_BYTES] for at in range(0, len(listed.outer), CARD_BYTES)]
    # Domain, bus and slot, RM's id, and the minor.
    found = sorted(struct.unpack_from("<IBB6xI36xI", card, 4) for card in cards if card[0])
    assert [minor for *_, minor in found] == list(range(count)), found
    ids = client.gpu_ids()
    assert sorted(ids) == list(range(count)), ids
    # The agent has attached the last node first.
    attached = [gpu_id for *_, gpu_id, _ in reversed(found)]
    assert attached == [ids[number] for number in range(count)], (found, ids)


def each_by_itself(count: int) -> None:
    clients = [Client(card=number) for number in range(count)]
    for taker in clients:
        before = [client.free_bytes() for client in clients]
        handle = taker.memory(PIECE)
        missed = [was - client.free_bytes() for was, client in zip(before, clients, strict=True)]
        assert missed == [PIECE if client is taker else 0 for client in clients], missed
        counted = [sum(client.pid_info(os.getpid())) for client in clients]
        assert counted == missed, counted
        assert taker.free(handle) == 0
    uvm = Uvm()
    assert [uvm.register_gpu(client.uuid(), client) for client in clients] == [0] * count
    uvm.close()


@decides(OF_EACH, NUMBERS, cards=2, long=True, whatever=LINKED)
def two() -> None:
    numbered(2)
    each_by_itself(2)


@decides(OF_EACH, NUMBERS, cards=4, long=True, limit_s=120, whatever=LINKED)
def four() -> None:
    numbered(4)
    each_by_itself(4)
