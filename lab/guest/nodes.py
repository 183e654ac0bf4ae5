"""From which of the guest's two nodes RM takes the host's memory: each has a processor and half of it."""

from __future__ import annotations

import ctypes
import os
from functools import partial
from pathlib import Path

from lab.tests.nv import HOST, MIB, Client, in_child
from tests.gpu import rm

NODES, SIZE_MIB = (0, 1), 128
SET_MEMPOLICY, BIND = 238, 2
LIBC = ctypes.CDLL(None, use_errno=True)
# MiB of each node, by the way in which memory is asked for and the number of the node that is meant.
Taken = dict[str, list[int]]


def available_bytes(node: int) -> int:
    """What caches hold is had back where memory is short."""
    lines = Path(f"/sys/devices/system/node/node{node}/meminfo").read_text().splitlines()
    kib = {line.split()[2]: int(line.split()[3]) for line in lines}
    return sum(kib[name] for name in ("MemFree:", "FilePages:", "SReclaimable:")) << 10


def taken() -> list[int]:
    client = Client()
    before = [available_bytes(node) for node in NODES]
    client.memory(SIZE_MIB * MIB, rm.MEMORY_HOST, attr=HOST)
    return [(before[node] - available_bytes(node)) // MIB for node in NODES]


def by_policy(node: int) -> list[int]:
    mask = ctypes.c_ulong(1 << node)
    said = LIBC.syscall(SET_MEMPOLICY, BIND, ctypes.byref(mask), 64)
    assert said == 0, os.strerror(ctypes.get_errno())
    return taken()


def by_processor(node: int) -> list[int]:
    os.sched_setaffinity(0, {node})
    return taken()


def by_each_way() -> Taken:
    return {
        f"{way.__name__} {node}": in_child(partial(way, node))
        for way in (by_policy, by_processor)
        for node in NODES
    }


def wrong(found: Taken) -> Taken:
    """Those of which less than half came from the node that was meant, or a quarter from the other."""
    meant = {way: int(way.split()[1]) for way in found}
    return {
        way: mib
        for way, mib in found.items()
        if mib[meant[way]] < SIZE_MIB // 2 or mib[1 - meant[way]] > SIZE_MIB // 4
    }
