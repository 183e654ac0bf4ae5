"""What external mappings take for page tables: a table that several have entries in is counted once."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Iterator
from ctypes import Structure, byref, c_uint32, c_uint64, c_void_p

import pytest
from page_tables import BIG_PAGE, HUGE_PAGE, Mapped, tables_bytes

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40
SPACES = 3


class Tables(Structure):
    _fields_ = [
        ("node", c_void_p),
        ("bucket", c_void_p),
        ("free_head", c_uint32),
        ("high", c_uint32),
        ("max", c_uint32),
        ("secret", c_uint64),
    ]


class Range(Structure):
    _fields_ = [("space", c_uint64), ("base", c_uint64), ("end", c_uint64), ("page_shift", c_uint32)]


class Books:
    def __init__(self, core: ctypes.CDLL, mappings: int) -> None:
        self._core = core
        self._tables = Tables()
        for name in ("add", "drop", "space"):
            getattr(core, f"page_tables_{name}").restype = c_uint64
        assert core.page_tables_open(byref(self._tables), mappings) == 0
        self.bytes = 0

    def _range(self, one: Mapped) -> Range:
        file = one.space if isinstance(one.space, int) else 0
        space = self._core.page_tables_space(byref(self._tables), c_uint64(file), bytes(16))
        return Range(space, one.base, one.base + one.size, one.page.bit_length() - 1)

    def add(self, one: Mapped) -> None:
        self.bytes += self._core.page_tables_add(byref(self._tables), byref(self._range(one)))

    def drop(self, one: Mapped) -> None:
        self.bytes -= self._core.page_tables_drop(byref(self._tables), byref(self._range(one)))

    def close(self) -> None:
        self._core.page_tables_close(byref(self._tables))


@pytest.fixture
def books(core: ctypes.CDLL) -> Iterator[Books]:
    made = Books(core, 1000)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("base", "length", "offset", "page", "found"),
    [
        (2 * MIB, 2 * MIB, 0, HUGE_PAGE, HUGE_PAGE),
        (GIB, GIB, 0, GIB // 2, HUGE_PAGE),
        (2 * MIB, 2 * MIB, 0, 0, 4 * KIB),
        (2 * MIB, 2 * MIB, 0, BIG_PAGE, BIG_PAGE),
        (2 * MIB, 2 * MIB, MIB, HUGE_PAGE, BIG_PAGE),
        (2 * MIB + 64 * KIB, 2 * MIB, 0, HUGE_PAGE, BIG_PAGE),
        (2 * MIB, 2 * MIB + 4 * KIB, 0, HUGE_PAGE, 4 * KIB),
        (2 * MIB, 2 * MIB, 32 * KIB, HUGE_PAGE, 4 * KIB),
        (0, 1, 0, HUGE_PAGE, 4 * KIB),
    ],
)
def test_pages_are_as_large_as_everything_allows(
    core: ctypes.CDLL, base: int, length: int, offset: int, page: int, found: int
) -> None:
    shift = page.bit_length() - 1 if page else 0
    args = (c_uint64(base), c_uint64(length), c_uint64(offset))
    assert 1 << core.page_shift_of(*args, shift) == found


def test_a_mapping_takes_a_table_of_each_level(books: Books) -> None:
    books.add(Mapped(1, TIB, 4 * KIB))
    assert books.bytes == 5 * 4096
    books.add(Mapped(1, TIB + 4 * KIB, 4 * KIB))
    assert books.bytes == 5 * 4096
    # Pages of another size are in another leaf, which is smaller.
    books.add(Mapped(1, TIB + 64 * KIB, 64 * KIB, BIG_PAGE))
    assert books.bytes == 5 * 4096 + 256
    books.add(Mapped(2, TIB, 2 * MIB, HUGE_PAGE))
    assert books.bytes == 9 * 4096 + 256


def test_all_of_a_mapping_is_counted(books: Books) -> None:
    books.add(Mapped(1, 0, TIB))
    assert books.bytes == (TIB // (2 * MIB) + TIB // (512 * MIB) + 4 + 1 + 1) * 4096
    books.drop(Mapped(1, 0, TIB))
    assert books.bytes == 0


def test_the_largest_there_is_does_not_wrap(books: Books) -> None:
    whole = Mapped(1, 0, (1 << 64) - 1)
    books.add(whole)
    assert books.bytes == sum(1 << (64 - shift) for shift in (21, 29, 38, 47, 56)) * 4096
    books.drop(whole)
    assert books.bytes == 0


def test_as_many_mappings_as_there_may_be_have_room(books: Books) -> None:
    many = [Mapped(1, number << 57 | 1 << 56, 1 << 56) for number in range(100)]
    many += [Mapped(2, (number << 40) + (1 << 39) - 4096, 8192) for number in range(900)]
    for _ in range(2):
        for one in many:
            books.add(one)
        for one in many:
            books.drop(one)
        assert books.bytes == 0


def place(chance: random.Random) -> tuple[int, int, int]:
    """Where, how much and by which pages: near the borders of what tables cover."""
    page = chance.choice((4 * KIB, BIG_PAGE, HUGE_PAGE))
    border = chance.randrange(4) << chance.choice((21, 29, 30))
    base = max(0, border + chance.randrange(-4, 4) * page)
    return base, chance.choice((1, 2, 3, 40, 700)) * page, page


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_steps_counts_each_table_once(books: Books, seed: int) -> None:
    chance = random.Random(seed)
    mapped: set[Mapped] = set()
    for _ in range(300):
        if mapped and chance.random() < 0.45:
            one = chance.choice(sorted(mapped, key=str))
            mapped.discard(one)
            books.drop(one)
        else:
            base, size, page = place(chance)
            one = Mapped(chance.randrange(SPACES), base, size, page)
            if any(
                one.space == other.space and base < other.base + other.size and other.base < base + size
                for other in mapped
            ):
                continue
            mapped.add(one)
            books.add(one)
        assert books.bytes == tables_bytes(mapped)
