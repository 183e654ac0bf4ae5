"""From which of the guest's two nodes RM takes the host's memory: each has a processor and half of it.

The kernel says of each page of a mapping where it lies. What a node has free says less: each processor keeps
freed pages of its own, and Linux 6.12 an eighth of the node at most.
"""

import array
import ctypes
import mmap
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from lab.tests.nv import HOST, MIB, Client, in_child, mapped
from tests.gpu import rm

NODES, SIZE_MIB = (0, 1), 32
PAGE, PAGES = 4096, SIZE_MIB * MIB // 4096
SET_MEMPOLICY, BIND = 238, 2
FRAME = (1 << 55) - 1
LIBC = ctypes.CDLL(None, use_errno=True)
# Pages of each node, by the way in which memory is asked for and the number of the node that is meant.
Taken = dict[str, list[int]]


def placed(pid: int | str, address: int) -> list[int]:
    """How many of a process's pages from that address on each node has."""
    entries = array.array("Q")
    with open(f"/proc/{pid}/pagemap", "rb") as pagemap:
        pagemap.seek(address // PAGE * entries.itemsize)
        entries.frombytes(pagemap.read(PAGES * entries.itemsize))
    begins = _begins()
    found = [0 for _ in NODES]
    for frame in (entry & FRAME for entry in entries if entry & FRAME):
        found[max(zone for zone in begins if zone[0] <= frame)[1]] += 1
    return found


def _begins() -> list[tuple[int, int]]:
    """The first frame of each zone, and its node; a zone without pages says none."""
    found = []
    for zone in Path("/proc/zoneinfo").read_text().split("Node ")[1:]:
        first = re.search(r"start_pfn: +(\d+)", zone)
        if first:
            found.append((int(first[1]), int(zone.partition(",")[0])))
    return sorted(found)


def taken() -> tuple[mmap.mmap, int]:
    """Memory of the host's, which lasts as long as its mapping, and where that lies."""
    client = Client()
    handle = client.memory(SIZE_MIB * MIB, rm.MEMORY_HOST, attr=HOST)
    view, _ = mapped(client, handle, rm.node("nvidiactl"), SIZE_MIB * MIB)
    return view, ctypes.addressof(ctypes.c_char.from_buffer(view))


def by_policy(node: int) -> None:
    mask = ctypes.c_ulong(1 << node)
    said = LIBC.syscall(SET_MEMPOLICY, BIND, ctypes.byref(mask), 64)
    assert said == 0, os.strerror(ctypes.get_errno())


def by_processor(node: int) -> None:
    os.sched_setaffinity(0, {node})


WAYS: dict[str, Callable[[], None]] = {
    f"{way.__name__} {node}": partial(way, node) for way in (by_policy, by_processor) for node in NODES
}


def by_each_way() -> Taken:
    def pages(ask: Callable[[], None]) -> list[int]:
        ask()
        _, address = taken()
        return placed("self", address)

    return {name: in_child(partial(pages, ask)) for name, ask in WAYS.items()}


def wrong(found: Taken) -> Taken:
    """Those of which a page came from the other node, or one is missing."""
    return {way: pages for way, pages in found.items() if pages[int(way.split()[1])] != PAGES}
