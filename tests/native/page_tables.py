"""The page tables that mappings take, counted one by one: the judge of account/page_tables.c."""

from collections.abc import Hashable, Iterable
from typing import NamedTuple

LEAF_SHIFT, DIRECTORY_SHIFTS = 21, (29, 38, 47, 56)
TABLE_BYTES, BIG_LEAF_BYTES = 4096, 256
BIG_PAGE, HUGE_PAGE = 1 << 16, 1 << 21


class Mapped(NamedTuple):
    vaspace: Hashable
    base: int
    size: int
    page: int = 4096


def charged_bytes(mappings: Iterable[Mapped]) -> int:
    """What mgpu charges: each mapping all of its tables, as if it were alone."""
    return sum(tables_bytes([one]) for one in mappings)


def tables_bytes(mappings: Iterable[Mapped]) -> int:
    """What nvidia-uvm takes for all of them together: a table that several have entries in is there once."""
    tables: dict[Hashable, int] = {}
    for one in mappings:
        last = one.base + one.size - 1
        for shift in DIRECTORY_SHIFTS:
            for block in range(one.base >> shift, (last >> shift) + 1):
                tables[one.vaspace, shift, block] = TABLE_BYTES
        if one.page < HUGE_PAGE:
            big = one.page == BIG_PAGE
            for block in range(one.base >> LEAF_SHIFT, (last >> LEAF_SHIFT) + 1):
                tables[one.vaspace, big, block] = BIG_LEAF_BYTES if big else TABLE_BYTES
    return sum(tables.values())
