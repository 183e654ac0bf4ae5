"""What external mappings are charged for page tables: never less than nvidia-uvm takes for them."""

import ctypes
import random
from ctypes import c_uint64

import pytest

from tests.native.page_tables import BIG_PAGE, HUGE_PAGE, Mapped, charged_bytes, tables_bytes

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40


def charge(core: ctypes.CDLL, one: Mapped) -> int:
    (find := core.page_tables_bytes).restype = c_uint64
    return int(find(c_uint64(one.base), c_uint64(one.base + one.size), one.page.bit_length() - 1))


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


@pytest.mark.parametrize(
    ("one", "found"),
    [
        (Mapped(1, TIB, 4 * KIB), 5 * 4096),
        (Mapped(1, TIB, 64 * KIB, BIG_PAGE), 4 * 4096 + 256),
        (Mapped(1, TIB, 2 * MIB, HUGE_PAGE), 4 * 4096),
        (Mapped(1, TIB, 2 * MIB + 4 * KIB), 6 * 4096),
        (Mapped(1, TIB - 4 * KIB, 8 * KIB), (2 + 2 + 2 + 1 + 1) * 4096),
    ],
)
def test_mapping_is_charged_a_table_of_each_level(core: ctypes.CDLL, one: Mapped, found: int) -> None:
    assert charge(core, one) == found == charged_bytes([one])


def test_large_mapping_is_charged_all_of_its_tables(core: ctypes.CDLL) -> None:
    assert charge(core, Mapped(1, 0, TIB)) == (TIB // (2 * MIB) + TIB // (512 * MIB) + 4 + 1 + 1) * 4096


def test_largest_mapping_there_is_does_not_wrap(core: ctypes.CDLL) -> None:
    whole = Mapped(1, 0, (1 << 64) - 1)
    assert charge(core, whole) == sum(1 << (64 - shift) for shift in (21, 29, 38, 47, 56)) * 4096


def place(chance: random.Random) -> Mapped:
    """Near the borders of what tables cover."""
    page = chance.choice((4 * KIB, BIG_PAGE, HUGE_PAGE))
    border = chance.randrange(4) << chance.choice((21, 29, 30))
    base = max(0, border + chance.randrange(-4, 4) * page)
    return Mapped(1, base, chance.choice((1, 2, 3, 40, 700)) * page, page)


@pytest.mark.parametrize("seed", range(20))
def test_no_set_of_mappings_takes_more_than_it_is_charged(core: ctypes.CDLL, seed: int) -> None:
    chance = random.Random(seed)
    mapped = {place(chance) for _ in range(100)}
    charged = sum(charge(core, one) for one in mapped)
    assert charged == charged_bytes(mapped)
    assert tables_bytes(mapped) <= charged <= tables_bytes(mapped) + 100 * 2 * 5 * 4096
