"""The cube algebra, and the cubes of the commands that the filter leaves alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oci_specs.seccomp import complement, cover, notified
from oci_specs.seccomp.cubes import below, covered, from_bound, meet, outside, overlap, within
from tests.support import rm_interface

pytestmark = pytest.mark.unit

INTERFACE = rm_interface.read()

WIDTH = 6
EVERYTHING = range(1 << WIDTH)
Cube = tuple[int, int]


def holds(cube: Cube, value: int) -> bool:
    return value & cube[0] == cube[1]


def members(cube: Cube) -> set[int]:
    return {value for value in EVERYTHING if holds(cube, value)}


small_cubes = st.tuples(st.sampled_from(EVERYTHING), st.sampled_from(EVERYTHING)).map(
    lambda pair: (pair[0], pair[0] & pair[1])
)


@given(small_cubes, small_cubes)
def test_two_cubes(a: Cube, b: Cube) -> None:
    both = members(a) & members(b)
    assert overlap(a, b) == bool(both)
    assert within(a, b) == (members(a) <= members(b))
    met = meet(a, b)
    assert (set() if met is None else members(met)) == both


@given(small_cubes)
def test_outside_is_everything_else_once(cube: Cube) -> None:
    for value in EVERYTHING:
        assert sum(holds(part, value) for part in outside(cube)) == (not holds(cube, value))


@pytest.mark.parametrize("bound", range((1 << WIDTH) + 1))
def test_bounds_once(bound: int) -> None:
    mask = (1 << WIDTH) - 1
    for value in EVERYTHING:
        assert sum(holds(part, value) for part in below(bound, mask)) == (value < bound)
        if bound <= mask:
            assert sum(holds(part, value) for part in from_bound(bound, mask)) == (value >= bound)


@given(small_cubes, st.lists(small_cubes, max_size=6))
def test_covered(cube: Cube, others: list[Cube]) -> None:
    union = set().union(*map(members, others)) if others else set()
    assert covered(cube, others) == (members(cube) <= union)


WATCHED = notified.NOTIFY_CUBES + notified.REFUSED_CUBES


def test_the_complement_is_exact() -> None:
    """A proof over all 2**32 commands, not a sample."""
    assert not [(a, b) for a in complement.COMPLEMENT for b in WATCHED if overlap(a, b)]
    assert covered((0, 0), complement.COMPLEMENT + WATCHED)


def test_the_complement_stays_small() -> None:
    """Every cube is a comparison on the path of every ioctl of the container."""
    assert len(complement.COMPLEMENT) <= 120


def test_the_watched_cubes_are_disjoint() -> None:
    assert not [(a, b) for n, a in enumerate(WATCHED) for b in WATCHED[n + 1 :] if overlap(a, b)]


def test_the_committed_complement_is_what_the_search_finds() -> None:
    assert Path(complement.__file__).read_text(encoding="utf-8") == cover.render()


def test_uvm_commands_are_those_of_the_interface() -> None:
    assert sorted(notified.UVM_COMMANDS) == sorted(item.number for item in INTERFACE.uvm)


def test_every_escape_is_watched_at_the_sizes_of_every_version() -> None:
    watched = set(notified.RM_PAIRS + notified.REFUSED)
    known = {
        (escape.number, size) for escape in INTERFACE.escapes for size in INTERFACE.all_sizes(escape.size)
    }
    assert known == watched


@pytest.mark.parametrize(("number", "size"), notified.RM_PAIRS)
def test_every_pair_is_in_a_cube(number: int, size: int) -> None:
    for type_and_direction in (0, 0xC0004600, 0x4000FF00, 0x80000000):
        command = size << 16 | number | type_and_direction
        assert any(holds(cube, command) for cube in notified.NOTIFY_CUBES)


@pytest.mark.parametrize("cards", [1, 2, 8, 31, 32, 33, 200])
def test_arrays_of_any_length_are_in_a_cube(cards: int) -> None:
    for command in (cards * 72 << 16 | 200, cards * 4 << 16 | 212):
        assert any(holds(cube, command) for cube in notified.NOTIFY_CUBES)


# Calls that have nothing to do with NVIDIA and must never wait for the mediator.
@pytest.mark.parametrize(
    "command",
    [
        0x5401,  # TCGETS
        0x5412,  # TIOCSTI
        0x5413,  # TIOCGWINSZ
        0x541B,  # FIONREAD
        0x5421,  # FIONBIO
        0x5451,  # FIOCLEX
        0x8910,  # SIOCGIFNAME
        0x40049409,  # FICLONE
        0xC0206440,  # a DRM driver's first command
        0x80045430,  # TIOCGPTN
        1,  # FIBMAP
    ],
)
def test_everyday_commands_are_left_alone(command: int) -> None:
    assert not any(holds(cube, command) for cube in WATCHED)
    assert any(holds(cube, command) for cube in complement.COMPLEMENT)
