"""The project's small tables of facts, and what has to be measured of each driver for them."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[2]
FACTS = REPOSITORY / "native_sched/nvidia/rm" / "facts"
# Where an answer's status lies, by the names that outer structs have for it.
STATUSES = ("status", "params.status", "Status", "rmStatus")


class Decoded(NamedTuple):
    """A field of a struct of ours (field "(size)": the struct), and NVIDIA's.

    how, of a struct: whole (ours has the size that every driver has), begins and ends (a part of theirs),
    longest (ours is the longest of theirs: what lies beyond a shorter one's end is not looked at). Of a
    field: "-", wider (ours takes the padding too). Of either, after that or alone, "since VERSION" or "until
    VERSION": of others it is not read.
    """

    struct: str
    field: str
    params: str
    params_field: str
    how: str


class Constant(NamedTuple):
    """A constant of ours and the expression in C over NVIDIA's headers whose value it has."""

    name: str
    expression: str


def rows(path: Path) -> Iterator[list[str]]:
    """A table's rows without its head."""
    for line in path.read_text().splitlines()[1:]:
        yield line.split("\t")


def decoded(folder: Path = FACTS) -> list[Decoded]:
    return [Decoded(*row) for row in rows(folder / "decoded.tsv")]


def constants(folder: Path = FACTS) -> list[Constant]:
    return [Constant(*row) for row in rows(folder / "constants.tsv")]


def escape_structs(folder: Path = FACTS) -> dict[str, list[str]]:
    """By escape the structs that the driver's code takes, which no header says (nv.c, escape.c)."""
    found: dict[str, list[str]] = {}
    for symbol, struct in rows(folder / "escapes.tsv"):
        found.setdefault(symbol, []).append(struct)
    return found


def wanted_fields(folder: Path = FACTS) -> list[tuple[str, str]]:
    """Of every driver: the fields that we decode."""
    return sorted({(row.params, row.params_field) for row in decoded(folder)})
