"""Where native_sched/nvidia/rm/interface.def disagrees with the facts of a version that mgpu serves."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tools.abi.interface import Interface, Row
from tools.abi.release import NONE, WHOLE, Release
from tools.abi.store import Store
from tools.abi.tables import FACTS, STATUSES, rows

# Only the closed module has them; the structs are those of the same classes of later cards.
LIKE = {"VOLTA_COMPUTE_A": "TURING_COMPUTE_A", "VOLTA_DMA_COPY_A": "TURING_DMA_COPY_A"}
# The fields that an escape's offsets are of.
FIELDS = {
    "parameters": ("pAllocParms", "params"),
    "their size": ("paramsSize",),
    "pointer": ("pRightsRequested",),
}
# Optional parameters, which mgpu takes no allocation with.
OPTIONAL = "NvHandle"


class Said(NamedTuple):
    """name: the row's. versions: where, in the order of the store."""

    name: str
    text: str
    versions: tuple[str, ...]

    def line(self) -> str:
        span = self.versions[0] if len(self.versions) == 1 else f"{self.versions[0]}..{self.versions[-1]}"
        return f"{self.name}: {self.text} in {span}"


def served(interface: Interface, store: Store) -> list[Release]:
    return [release for version, release in store.releases.items() if interface.serves(version)]


def compare(interface: Interface, store: Store, folder: Path = FACTS) -> list[Said]:
    found: dict[tuple[str, str], list[str]] = {}
    unnamed = _unnamed(store, folder)
    for release in served(interface, store):
        for row in interface.rows:
            for text in _row(interface, row, release, unnamed):
                found.setdefault((row.symbol, text), []).append(release.version)
    for name, text, branch in _unknown(interface, store):
        found.setdefault((name, text), []).append(branch)
    return [Said(name, text, tuple(versions)) for (name, text), versions in found.items()]


def _unnamed(store: Store, folder: Path) -> dict[str, int]:
    """Controls that no header of any version names, as nvproxy calls them."""
    named = {symbol for (symbol,) in store.keys("control")}
    return {
        symbol: int(number, 16)
        for kind, symbol, number, *_ in rows(folder / "nvproxy.tsv")
        if kind == "control" and number != NONE and symbol not in named
    }


def _row(interface: Interface, row: Row, release: Release, unnamed: dict[str, int]) -> Iterator[str]:
    theirs = _theirs(row, release)
    if not row.applies(release.version):
        others = [one for one in interface.rows if one.kind == row.kind and one.base == row.base]
        told = row.disposition == "REFUSED" or any(one.applies(release.version) for one in others)
        if theirs is not None and theirs.number == row.number and release.complete and not told:
            yield "the row says that it is not there, and it is"
        return
    if theirs is None:
        if release.complete and not _has_no_symbol(row, release, unnamed):
            yield f"{row.kind} {row.number:#x}: no header has the symbol"
        return
    number, params, size = theirs
    if number != row.number:
        yield f"{row.kind} {row.number:#x}: it is {number:#x}"
    if row.size is not None:
        yield from _size(interface, row, release, params, size)
    if row.status_at is not None:
        yield from _status_at(row, release, params)
    yield from _places(row, release, params)


class Theirs(NamedTuple):
    """size: bytes as the facts say them."""

    number: int
    params: str
    size: str


def _theirs(row: Row, release: Release) -> Theirs | None:
    facts = release.facts[row.kind]
    if row.kind == "status":
        known = facts.get((row.base,))
        return None if known is None else Theirs(int(known[0], 16), NONE, NONE)
    if row.kind == "escape":
        return _escape(row, release)
    known = facts.get((row.base,))
    if known is None:
        return None
    if known[1] == NONE and row.base in LIKE:
        return Theirs(int(known[0], 16), *facts.get((LIKE[row.base],), known)[1:])
    return Theirs(int(known[0], 16), known[1], known[2])


def _escape(row: Row, release: Release) -> Theirs | None:
    """An escape may take several structs: a row for each but the longest is named after it as well."""
    for (symbol, params), (number, size) in release.facts["escape"].items():
        struct = params.removesuffix("_PARAMETERS")
        if row.base == f"{symbol}_{struct}":
            return Theirs(int(number, 16), params, size)
    found = [
        Theirs(int(number, 16), params, size)
        for (symbol, params), (number, size) in release.facts["escape"].items()
        if symbol == row.base
    ]
    return max(found, key=lambda theirs: int(theirs.size) if theirs.size != NONE else 0, default=None)


def _has_no_symbol(row: Row, release: Release, unnamed: dict[str, int]) -> bool:
    """The driver has it, or hands it to the card, and no header says so. Its name is nvproxy's, or its
    number.
    """
    if row.kind != "control":
        return False
    number = f"{row.number:#x}"
    if any(
        value[0] == number and not key[0].startswith("(") for key, value in release.facts["control"].items()
    ):
        return False
    return unnamed.get(row.symbol) == row.number or row.symbol.upper().endswith(f"_0X{row.number:X}")


def _size(interface: Interface, row: Row, release: Release, params: str, size: str) -> Iterator[str]:
    assert row.size is not None
    if array := re.fullmatch(r"RM_ARRAY_OF\((\d+)\)", row.size):
        element = params.partition("[")[0]
        known = release.facts["field"].get((element, WHOLE), (NONE, "4" if element == "NvU32" else NONE))[1]
        if known not in (array[1], NONE):
            yield f"{row.kind} {row.number:#x}: elements of {array[1]} bytes, and {element} has {known}"
        return
    ours = interface.size(row.size, release.version)
    if ours is None or (ours == 0 and (row.kind == "uvm" or params == OPTIONAL)):
        return
    if size == NONE and params != NONE:
        return
    theirs = 0 if size == NONE else int(size)
    if params == NONE and not release.complete:
        return
    if ours != theirs:
        yield f"{row.kind} {row.number:#x}: {ours} bytes, and {params if theirs else 'no struct'} has {theirs}"


def _places(row: Row, release: Release, params: str) -> Iterator[str]:
    for what, ours in row.places:
        found = [release.facts["field"].get((params, name)) for name in FIELDS[what]]
        theirs = [int(place[0], 16) for place in found if place is not None]
        if theirs != [ours]:
            at = f"has it at {theirs[0]:#x}" if theirs else "has none"
            yield f"{row.kind} {row.number:#x}: {what} at {ours:#x}, and {params} {at}"


def _status_at(row: Row, release: Release, params: str) -> Iterator[str]:
    if row.status_at == "RM_NO_STATUS" or row.status_at is None:
        return
    places = [release.facts["field"].get((params, name)) for name in STATUSES]
    found = [int(place[0], 16) for place in places if place is not None]
    if found and found[0] != int(row.status_at, 0):
        yield f"{row.kind} {row.number:#x}: status at {row.status_at}, and {params} has it at {found[0]:#x}"


def _unknown(interface: Interface, store: Store) -> Iterator[tuple[str, str, str]]:
    """A size that we say of a branch of which nothing says it."""
    known = served(interface, store)
    for major in interface.branches:
        releases = [release for release in known if int(release.version.split(".")[0]) == major]
        if not releases:
            yield f"BRANCH({major})", "no facts at all", str(major)
        if any(release.complete for release in releases):
            continue
        sizes = _struct_sizes(releases)
        for row in interface.rows:
            sized = row.size is not None and interface.size(row.size, f"{major}.999") not in (None, 0)
            found = [
                (release, _theirs(row, release)) for release in releases if row.applies(release.version)
            ]
            is_known = any(theirs is not None and theirs.params in sizes for _, theirs in found)
            if sized and found and not is_known and row.disposition != "REFUSED":
                yield (
                    row.symbol,
                    f"{row.kind} {row.number:#x}: {row.size} bytes, and nothing says its size",
                    str(major),
                )


def _struct_sizes(releases: list[Release]) -> set[str]:
    """The structs whose size any of them says, of whatever takes them."""
    found = {key[0] for release in releases for key in release.facts["field"] if key[1] == WHOLE}
    for release in releases:
        for kind in ("class", "control", "uvm"):
            found |= {params for _, params, size in release.facts[kind].values() if size != NONE}
        found |= {key[1] for key, value in release.facts["escape"].items() if value[1] != NONE}
    return found
