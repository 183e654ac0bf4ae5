"""Makes what the container's filter knows of the driver's commands: oci_specs/seccomp/notified.py and
complement.py.

    python -m tools.filter_lists

From the rows of interface.def. Run it when a row's number, size or disposition has changed.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.support.places import REPOSITORY
from tests.support.rm_interface import Interface, Item, read
from tools.cover import complement

Cube = tuple[int, int]

FOLDER = REPOSITORY / "oci_specs" / "seccomp"
ALL = 0xFFFFFFFF
NUMBER, SIZE, SIZE_AT = 0xFF, 0x3FFF, 16
TO_MEDIATOR = ("MEDIATED", "ANSWERED")
# Whole blocks of nvidia-uvm's bare numbers: fewer cubes than one for each, and none of Linux's own commands
# is in them.
UVM_BLOCKS: tuple[Cube, ...] = (
    (ALL & ~0xF, 0x10),
    (ALL & ~0x1F, 0x20),
    (ALL & ~0x3F, 0x40),
    (ALL & ~0x3, 0x30000000),
)

HEAD = '''"""The calls that the mediator decides on, and those it refuses. Written by tools/filter_lists.py.

As cubes, (mask, datum) over the low 32 bits of the command: a command c is in a cube when c & mask == datum.
The NVIDIA driver looks at the number (bits 0-7) and the size (bits 16-29) of an escape and ignores the type
and direction bits, so those are what has to match; commands of nvidia-uvm are bare numbers that would collide
with FIONBIO and friends.
"""
'''
LEFT_ALONE = (
    '"""The commands that are in neither exact list, as (mask, datum). Written by tools/filter_lists.py."""'
)


def _elements(least: int) -> list[Cube]:
    """Sizes of arrays, which the driver divides by an element's: from the power of two below one element
    up."""
    first = least.bit_length() - 1
    return [(SIZE & ~((1 << bit) - 1), 1 << bit) for bit in range(first, SIZE.bit_length())]


def _sizes(interface: Interface, item: Item) -> list[Cube]:
    if not item.array:
        none = {0} if item.sizeless else set()
        return [(SIZE, size) for size in sorted(interface.all_sizes(item.size) | none)]
    assert isinstance(item.size, int), item.name
    # Where the driver takes whole elements only, as of attached GPUs, their low bits say so in one cube.
    return [(0x3, 0)] if item.size == 4 else _elements(item.size)


def _escapes(interface: Interface, dispositions: Iterable[str]) -> Iterator[Cube]:
    for item in interface.escapes:
        if item.disposition in dispositions:
            for mask, datum in _sizes(interface, item):
                yield mask << SIZE_AT | NUMBER, datum << SIZE_AT | item.number


def _merged(cubes: Iterable[Cube]) -> list[Cube]:
    """The same commands in fewer cubes: two that differ in one fixed bit are one without it."""
    found = set(cubes)
    while pair := next(
        (
            (one, other)
            for one in sorted(found)
            for other in sorted(found)
            if one[0] == other[0] and (one[1] ^ other[1]).bit_count() == 1
        ),
        None,
    ):
        (mask, datum), (_, other) = pair
        found -= set(pair)
        found.add((mask & ~(datum ^ other), datum & other))
    return sorted(found, key=lambda cube: (cube[1] & NUMBER, cube))


def notified(interface: Interface) -> list[Cube]:
    return [*_merged(_escapes(interface, TO_MEDIATOR)), *UVM_BLOCKS]


def refused(interface: Interface) -> list[Cube]:
    return _merged(_escapes(interface, ("REFUSED",)))


def _rows(name: str, cubes: Iterable[Cube]) -> list[str]:
    return [
        "",
        f"{name}: tuple[tuple[int, int], ...] = (",
        *(f"    (0x{mask:08X}, 0x{datum:08X})," for mask, datum in cubes),
        ")",
    ]


def files(interface: Interface) -> dict[Path, str]:
    """The text of each file."""
    to_mediator, denied = notified(interface), refused(interface)
    lists = [HEAD.rstrip("\n"), *_rows("NOTIFY_CUBES", to_mediator)]
    rest = complement(tuple(to_mediator + denied))
    return {
        FOLDER / "notified.py": "\n".join([*lists, *_rows("REFUSED_CUBES", denied), ""]),
        FOLDER / "complement.py": "\n".join([LEFT_ALONE, *_rows("COMPLEMENT", rest), ""]),
    }


if __name__ == "__main__":
    for path, text in files(read()).items():
        path.write_text(text)
