"""The cube algebra, and the cubes of the commands that the filter leaves alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oci_specs.seccomp import broad, complement, notified
from oci_specs.seccomp.cubes import below, covered, from_bound, meet, outside, overlap, within
from tests.support import rm_interface
from tests.support.watched import REFUSED_PAIRS, RM_PAIRS, UVM_COMMANDS
from tools import filter_lists

INTERFACE = rm_interface.read()

WIDTH = 6
EVERYTHING = range(1 << WIDTH)
Cube = tuple[int, int]
Cubes = tuple[Cube, ...]


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


@pytest.mark.parametrize(
    ("left_alone", "taken"), [(complement.COMPLEMENT, WATCHED), (broad.LEFT_ALONE, broad.NOTIFIED)]
)
def test_each_command_is_in_one_of_the_lists(left_alone: Cubes, taken: Cubes) -> None:
    """A proof over all 2**32 commands, not a sample."""
    assert not [(a, b) for a in left_alone for b in taken if overlap(a, b)]
    assert covered((0, 0), left_alone + taken)


def test_whatever_is_watched_is_notified_by_the_broad_list() -> None:
    assert [cube for cube in WATCHED if not covered(cube, broad.NOTIFIED)] == []


def test_lists_stay_small() -> None:
    """Every cube is a comparison on the path of every ioctl of the container, and time of its start."""
    assert len(complement.COMPLEMENT) <= 174
    assert len(broad.LEFT_ALONE + broad.NOTIFIED) <= 24


def test_what_is_notified_is_not_refused_too() -> None:
    assert not [(a, b) for a in notified.NOTIFY_CUBES for b in notified.REFUSED_CUBES if overlap(a, b)]


def test_lists_are_what_the_rows_say() -> None:
    for path, text in filter_lists.files(INTERFACE).items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run python -m tools.filter_lists"


def types_and_directions(number: int, size: int) -> list[int]:
    return [size << 16 | number | other for other in (0, 0xC0004600, 0x4000FF00, 0x80000000)]


def dispositions(command: int) -> tuple[bool, bool]:
    """Whether it is notified, and whether it is refused."""
    notifies, refuses = (
        any(holds(cube, command) for cube in cubes)
        for cubes in (notified.NOTIFY_CUBES, notified.REFUSED_CUBES)
    )
    return notifies, refuses


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
        # Terminals' without a struct of a known size, FIONREAD, FIONBIO, FIOCLEX, FIOASYNC.
        *(number for number in range(0x5401, 0x5480) if number < 0x5440 or not number & 8),
        *(0x5400 | direction << 30 | 44 << 16 | number for number in range(42, 46) for direction in (1, 2)),
        0x40045431,  # TIOCSPTLCK
        0x80045430,  # TIOCGPTN
        *range(0x8901, 0x8940),  # sockets' and network devices'
        *range(0x8980, 0x89C0),
        0x40049409,  # FICLONE
        0xC020660B,  # FS_IOC_FIEMAP
        0x80086601,  # FS_IOC_GETFLAGS
        0x801C581F,  # FS_IOC_FSGETXATTR
        0x80081272,  # BLKGETSIZE64
        *(number for number in range(0x1260, 0x1280) if not number & 8),  # disks'
        0x2285,  # SG_IO
        0xC0181B01,  # RDMA_VERBS_IOCTL
        0xC0502100,  # SECCOMP_IOCTL_NOTIF_RECV
        0xC028AA03,  # UFFDIO_COPY
        *range(0x2400, 0x240C),  # performance counters'
        0xC0106401,  # DRM_IOCTL_GET_UNIQUE
        0xAE80,  # KVM_RUN
        *(number for number in range(0x3B64, 0x3B80) if not number & 8),  # VFIO's
        *range(8),  # FIBMAP, FIGETBSZ, SCSI disks'
    ],
)
def test_everyday_commands_are_left_alone(command: int) -> None:
    assert not any(holds(cube, command) for cube in WATCHED + broad.NOTIFIED)
    for lists in (complement.COMPLEMENT, broad.LEFT_ALONE):
        assert any(holds(cube, command) for cube in lists)
