"""Managed memory on the card, brought there by UVM_MIGRATE and by faults."""

import errno
import os
from collections.abc import Callable

from lab.claims import decides
from lab.guest import boxes
from lab.guest.copies import Copies
from lab.guest.managed import MANAGED, MANAGED_BASE, Managed
from lab.tests.answers import REGISTERED, WORKING
from lab.tests.nv import DEVICE, MIB, Client, memory
from lab.tests.under_mgpu import LIMIT_S, free_at_rest, until_free
from lab.tests.uvm import Registered
from tests.gpu import rm
from tests.gpu.product import Container
from tests.support.rm_numbers import NV_ERR_NO_MEMORY

PIECE = 64 * MIB


def give_way(client: Client, one: Managed, bring: Callable[[], None]) -> None:
    before, counted = client.free_bytes(), client.pid_info(os.getpid())
    bring()
    there = before - client.free_bytes()
    assert there >= MANAGED, f"{there} bytes are on the card"
    assert client.pid_info(os.getpid()) == counted
    taken = 0
    while client.alloc(DEVICE, rm.MEMORY, memory(PIECE))[0] == 0:
        taken += PIECE
    assert client.alloc(DEVICE, rm.MEMORY, memory(PIECE))[0] == NV_ERR_NO_MEMORY
    assert taken > before - MANAGED, (before, there, taken)
    assert one.intact()


@decides(
    "managed pages that UVM_MIGRATE brought to the card give way to allocations",
    "GET_PID_INFO counts managed memory on the card for no process",
    whatever=REGISTERED,
    limit_s=180,
)
def managed_pages_give_way() -> None:
    on = Registered()
    one = Managed(on)
    give_way(on.client, one, one.migrate)
    on.close()


@decides("pages that faults brought in give way as migrated ones do", whatever=WORKING, limit_s=180)
def faulted_pages_give_way() -> None:
    """A fault is as clc369.h has it; nvidia-uvm brings the page, and has the write done again."""
    engine = Copies(Client())
    one = Managed(engine.work.on, base=MANAGED_BASE)
    give_way(engine.work.client, one, lambda: one.write_by(engine))
    engine.work.on.close()


def each(of: list[Container], step: str) -> None:
    for box in of:
        boxes.tell(box, step)
        assert boxes.told(box) == {"intact": True}


@decides(long=True, limit_s=LIMIT_S)
def containers_keep_theirs() -> None:
    """By faults, each within its cap, and charged by its size; nothing beyond it. Both give way to memory
    that no cap is for, with their data, and come back.
    """
    product, outside = boxes.product(), Client()
    before = free_at_rest(product, outside)
    with product.container(boxes.inside("managed"), memory_mib=MANAGED // MIB) as beyond:
        assert boxes.told(beyond) == {"refused": errno.ENOMEM}
    until_free(outside, before)
    words = boxes.inside("managed")
    with (
        product.container(words, memory_mib=1024, told=True) as one,
        product.container(words, memory_mib=1024, told=True) as other,
    ):
        both = [one, other]
        assert [boxes.told(box) for box in both] == [{"refused": 0}] * 2
        used = [boxes.used_bytes(box) for box in both]
        each(both, "write")
        there = before - outside.free_bytes()
        assert 2 * MANAGED <= there <= sum(used), (there, used)
        assert [boxes.used_bytes(box) for box in both] == used
        taker, taken = Client(), 0
        while taker.alloc(DEVICE, rm.MEMORY, memory(PIECE))[0] == 0:
            taken += PIECE
        assert taken > before - 2 * MANAGED, (before, there, taken)
        each(both, "read")
        taker.close()
        each(both, "write")
        assert before - outside.free_bytes() >= 2 * MANAGED
    until_free(outside, before)
