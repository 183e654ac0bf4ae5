"""The cube algebra, and the cubes of the commands that the filter leaves alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oci_specs.seccomp import complement, notified
from oci_specs.seccomp.cubes import below, covered, from_bound, meet, outside, overlap, within
from tests.support import rm_interface
from tests.support.watched import REFUSED_PAIRS, RM_PAIRS, UVM_COMMANDS
from tools import filter_lists

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


def test_the_lists_are_what_the_rows_say() -> None:
    for path, text in filter_lists.files(INTERFACE).items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run python -m tools.filter_lists"


def types_and_directions(number: int, size: int) -> list[int]:
    return [size << 16 | number | other for other in (0, 0xC0004600, 0x4000FF00, 0x80000000)]


def dispositions(command: int) -> tuple[bool, bool]:
    """Whether it is notified, and whether it is refused."""
    return tuple(  # type: ignore[return-value]
        any(holds(cube, command) for cube in cubes)
        for cubes in (notified.NOTIFY_CUBES, notified.REFUSED_CUBES)
    )


@pytest.mark.parametrize(("number", "size"), RM_PAIRS)
def test_mediated_escapes_are_notified(number: int, size: int) -> None:
    for command in types_and_directions(number, size):
        assert dispositions(command) == (True, False)


@pytest.mark.parametrize(("number", "size"), REFUSED_PAIRS)
def test_refused_escapes_are_refused(number: int, size: int) -> None:
    for command in types_and_directions(number, size):
        assert dispositions(command) == (False, True)


def test_passed_escapes_are_left_alone() -> None:
    for escape in INTERFACE.escapes:
        for size in INTERFACE.all_sizes(escape.size) if escape.disposition == "PASSED" else ():
            for command in types_and_directions(escape.number, size):
                assert dispositions(command) == (False, False), escape.name


@pytest.mark.parametrize("command", UVM_COMMANDS)
def test_commands_of_nvidia_uvm_are_notified(command: int) -> None:
    assert dispositions(command) == (True, False)


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
        0x5452,  # FIOASYNC
        1,  # FIBMAP
        2,  # FIGETBSZ
        5,  # SCSI_IOCTL_START_UNIT
    ],
)
def test_everyday_commands_are_left_alone(command: int) -> None:
    assert not any(holds(cube, command) for cube in WATCHED)
    assert any(holds(cube, command) for cube in complement.COMPLEMENT)
