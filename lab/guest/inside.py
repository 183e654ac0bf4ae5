"""What the tests' containers do by direct calls: `python3 -m lab.guest.inside VERB NUMBER...`"""

import json
import mmap
import os
import sys
import time
from collections.abc import Callable

from lab.guest import nodes as guest_nodes
from lab.guest import pair as guest_pair
from lab.guest import reaching
from lab.guest.copies import Copies
from lab.guest.managed import MANAGED_BASE, Managed
from lab.tests.loaded import params_bytes
from lab.tests.nv import (
    COMPOSE,
    DEVICE,
    HEAP_FREE,
    HEAP_SIZE,
    MIB,
    SHARE_ALL,
    SUBDEVICE,
    Client,
    mapped,
    memory,
)
from tests.gpu import rm
from tests.support.rm_numbers import NV00DE_CTRL_CMD_REQUEST_DATA_POLL, RM_USER_SHARED_DATA

PROCESSES, ROUNDS = 8, 10
PAGE_BEGIN = 16  # NV00DE_SHARED_DATA is longer, and RM maps no more than there is


def tell(**said: object) -> None:
    print(json.dumps(said), flush=True)


def rest() -> None:
    time.sleep(3600)


def fill(piece_mib: int) -> None:
    """Takes pieces until one is refused, says so, and keeps them."""
    client, held = Client(), 0
    size, free = client.fb(HEAP_SIZE, HEAP_FREE)
    while not (status := client.alloc(DEVICE, rm.MEMORY, memory(piece_mib * MIB))[0]):
        held += piece_mib
    tell(held_mib=held, status=status, size_mib=size >> 10, free_mib=free >> 10)
    rest()


def beat(mib: int) -> None:
    """Keeps that much, and takes and gives back a MiB ever again."""
    client = Client()
    client.memory(mib * MIB)
    for number in range(1_000_000):
        handle = client.memory(MIB)
        assert client.free(handle) == 0
        tell(beat=number, at_s=time.monotonic())
        time.sleep(0.1)


def ask(number: int, minor: int) -> None:
    """Takes and gives back a MiB of that card ever again, and says what the driver says."""
    client = Client(card=number, minor=minor)
    while True:
        tell(**client.state(), at_s=time.monotonic())
        time.sleep(0.1)


def copy(number: int = 0, minor: int = 0) -> None:
    """Ever again, on that card, and says whether the card's data is what it was."""
    work = Copies(Client(card=number, minor=minor))
    while True:
        tell(intact=all(work.intact() for _ in range(ROUNDS)), at_s=time.monotonic())


def copies() -> None:
    """For each line that it is told; whether the card's data is what it was."""
    work = Copies(Client())
    for _ in sys.stdin:
        tell(intact=work.intact())


def managed() -> None:
    """Managed memory; for each line whether it is what it was, "write": once the card has written to it."""
    engine = Copies(Client())
    try:
        one = Managed(engine.work.on, base=MANAGED_BASE)
    except OSError as error:
        return tell(refused=error.errno)
    tell(refused=0)
    for line in sys.stdin:
        if line.strip() == "write":
            one.write_by(engine)
        tell(intact=one.intact())


def several(mib: int) -> None:
    """As many processes with that much each, and then this one until it is refused."""
    for _ in range(PROCESSES - 1):
        if os.fork() == 0:
            client = Client()
            client.memory(mib * MIB)
            tell(pid=os.getpid())
            rest()
    fill(mib)


def names(mib: int) -> None:
    """Memory of one process has a second name in another, since it is shared with all."""
    first = Client()
    handle = first.memory(mib * MIB)
    assert first.share(handle, SHARE_ALL, action=COMPOSE) == 0
    if os.fork() == 0:
        tell(status=Client().dup(first.root, handle)[0])
    rest()


def nodes(_: int) -> None:
    """A process by each way in which the host's memory is asked for; where it lies is seen from outside."""
    for name, ask in guest_nodes.WAYS.items():
        if os.fork() == 0:
            ask()
            view, address = guest_nodes.taken()
            tell(way=name, pid=os.getpid(), address=address)
            rest()
            view.close()
    rest()


def page() -> None:
    """RM_USER_SHARED_DATA: whether anything is in it, and what RM says of having it polled."""
    client = Client()
    handle = client.must_alloc(SUBDEVICE, RM_USER_SHARED_DATA, bytes(params_bytes("RM_USER_SHARED_DATA")))
    view, _ = mapped(client, handle, rm.node("nvidiactl"), PAGE_BEGIN, mmap.PROT_READ)
    polled, _ = client.control(handle, NV00DE_CTRL_CMD_REQUEST_DATA_POLL, bytes(8))
    tell(shows=any(view[:]), polled=polled)
    rest()


def reached() -> None:
    """Whether another device's driver is given memory of this process, and loses it when it is freed."""
    client = Client()
    status, thing = reaching.make(client)
    if status:
        tell(made=status)
        return rest()
    memory = reaching.filled(client)
    known = reaching.known(client, thing, memory)
    given = reaching.asked()
    client.free(memory)
    tell(made=status, known=known, given=given, taken=reaching.taken_back())
    rest()


def pair(*cards: int) -> None:
    """All cards of the guest: id and UUID of each."""
    uuids = [number.to_bytes(16) for number in cards[1::2]]
    tell(**guest_pair.tried(list(zip(cards[::2], uuids, strict=True))))
    rest()


if __name__ == "__main__":
    some: tuple[Callable[..., None], ...] = (
        fill,
        beat,
        ask,
        copy,
        copies,
        managed,
        several,
        names,
        nodes,
        page,
        reached,
        pair,
    )
    verbs = {verb.__name__: verb for verb in some}
    verbs[sys.argv[1]](*map(int, sys.argv[2:]))
