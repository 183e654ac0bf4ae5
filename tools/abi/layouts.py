"""Where the structs that mgpu decodes, and its constants, disagree with the facts of a version that it
serves.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.abi.compiler import evaluate
from tools.abi.interface import HEADERS, Interface, Row
from tools.abi.measure import field_size, offset, size
from tools.abi.parity import Said, served
from tools.abi.release import WHOLE, Release, order
from tools.abi.store import Store
from tools.abi.tables import FACTS, REPOSITORY, Decoded, constants, decoded

# Not fields, but places without one, or which are not read.
FILLERS = re.compile(r"(^|\.)(pad\d*|rest|bytes|unused)$")
# Not the driver's: what the headers pass among our own functions.
OWN = frozenset({"rm_perfmon_layout", "rm_perfmon_use", "rm_runlist_shape"})
_WORDS = re.compile(r"[A-Za-z_]\w*|0x[0-9a-fA-F]+|\d+|\S")


@dataclass(frozen=True)
class Place:
    offset: int
    bytes: int

    @property
    def end(self) -> int:
        return self.offset + self.bytes


@dataclass(frozen=True)
class Ours:
    """What the compiler says of our headers: by struct its size, by field its place, by name a constant's
    value.
    """

    sizes: dict[str, int]
    places: dict[tuple[str, str], Place]
    constants: dict[str, int]


def measure(paths: Sequence[Path] = HEADERS, folder: Path = FACTS) -> Ours:
    """Problem: the headers do not compile."""
    rows, named = decoded(folder), constants(folder)
    structs = sorted({row.struct for row in rows})
    fields = sorted({(row.struct, row.field) for row in rows if row.field != WHOLE})
    expressions = [size(f"struct {struct}") for struct in structs]
    expressions += [offset(f"struct {struct}", name) for struct, name in fields]
    expressions += [field_size(f"struct {struct}", name) for struct, name in fields]
    expressions += [constant.name for constant in named]
    folders = [REPOSITORY]
    found = evaluate([path.as_posix() for path in paths], folders, expressions, "our headers")
    values = iter(found)
    sizes = {struct: next(values) for struct in structs}
    offsets = {field: next(values) for field in fields}
    lengths = {field: next(values) for field in fields}
    numbers = {constant.name: next(values) for constant in named}
    return Ours(
        {struct: value for struct, value in sizes.items() if value is not None},
        {
            field: Place(at, length)
            for field in fields
            if (at := offsets[field]) is not None and (length := lengths[field]) is not None
        },
        {name: value for name, value in numbers.items() if value is not None},
    )


def compare(interface: Interface, store: Store, ours: Ours, folder: Path = FACTS) -> list[Said]:
    found: dict[tuple[str, str], list[str]] = {}
    hows = {(row.struct, row.params): row.how.split()[0] for row in decoded(folder) if row.field == WHOLE}
    for release in served(interface, store):
        measured = [*_constants(release, ours, folder)]
        for row in decoded(folder):
            measured += [(f"{row.struct}.{row.field}", text) for text in _row(row, hows, release, ours)]
        for name, text in measured:
            found.setdefault((name, text), []).append(release.version)
    for name, text, branch in _unplaced(interface, store, folder):
        found.setdefault((name, text), []).append(branch)
    return [Said(name, text, tuple(versions)) for (name, text), versions in found.items()]


def _unplaced(interface: Interface, store: Store, folder: Path) -> Iterator[tuple[str, str, str]]:
    """A field that we read of a call that we take, in a branch of which nothing says where it is."""
    whole = [release for release in store.releases.values() if release.complete][-1]
    for major in interface.branches:
        releases = [one for one in served(interface, store) if int(one.version.split(".")[0]) == major]
        if any(release.complete for release in releases):
            continue
        taken = {
            params
            for row in interface.rows
            if row.disposition != "REFUSED" and any(row.applies(release.version) for release in releases)
            for params in _params(row, whole)
        }
        for row in decoded(folder):
            is_read = row.params in taken and any(_applies(row, release.version) for release in releases)
            key = (row.params, row.params_field)
            if is_read and not any(key in release.facts["field"] for release in releases):
                yield f"{row.struct}.{row.field}", f"nothing says where {'.'.join(key)} is", str(major)


def _params(row: Row, release: Release) -> list[str]:
    """The structs that the row's call takes in that driver."""
    if row.kind == "escape":
        return [params for symbol, params in release.facts["escape"] if symbol == row.base]
    known = release.facts[row.kind].get((row.base,), ())
    return [known[1]] if len(known) > 1 else []


def _constants(release: Release, ours: Ours, folder: Path) -> Iterator[tuple[str, str]]:
    for constant in constants(folder):
        value = ours.constants.get(constant.name)
        known = release.facts["constant"].get((constant.expression,))
        if value is None:
            yield constant.name, "our headers lack the constant"
        elif known is not None and int(known[0], 16) != value & 0xFFFFFFFF:
            yield constant.name, f"{value:#x}, and {constant.expression} is {known[0]}"


def _row(row: Decoded, hows: dict[tuple[str, str], str], release: Release, ours: Ours) -> Iterator[str]:
    whole = release.facts["field"].get((row.params, WHOLE))
    if whole is None or row.struct not in ours.sizes:
        if row.struct not in ours.sizes:
            yield "our headers lack the struct"
        return
    if not _applies(row, release.version):
        return
    theirs, mine = int(whole[1]), ours.sizes[row.struct]
    if row.field == WHOLE:
        if not {"whole": mine == theirs, "longest": mine >= theirs}.get(row.how.split()[0], mine <= theirs):
            yield f"{mine} bytes, and {row.params} has {theirs}"
        return
    place = ours.places.get((row.struct, row.field))
    if place is None:
        yield "our headers lack the field"
        return
    how = hows.get((row.struct, row.params), "whole")
    known = release.facts["field"].get((row.params, row.params_field))
    shift = theirs - mine if how == "ends" else 0
    if known is None:
        # An incomplete release may say a struct's size alone. Beyond the end of a shorter one nothing is
        # read.
        if release.complete and place.offset + shift < theirs:
            yield f"{row.params} has no {row.params_field}"
        return
    yield from _place(row, how, Place(int(known[0], 16), int(known[1])), place, shift, theirs)


def _applies(row: Decoded, version: str) -> bool:
    at = order(version)
    since, until = (re.search(rf"{word} ([0-9.]+)", row.how) for word in ("since", "until"))
    return (since is None or at >= order(since[1])) and (until is None or at < order(until[1]))


def _place(row: Decoded, how: str, known: Place, place: Place, shift: int, theirs: int) -> Iterator[str]:
    name = f"{row.params}.{row.params_field}"
    if place.offset + shift != known.offset:
        yield f"at {place.offset + shift:#x}, and {name} is at {known.offset:#x}"
    cut_short = how == "longest" and known.end == theirs and place.bytes > known.bytes
    if place.bytes != known.bytes and not cut_short and row.how != "wider":
        yield f"{place.bytes} bytes, and {name} has {known.bytes}"


def structs(paths: Sequence[Path] = HEADERS) -> dict[str, list[str]]:
    """Every struct that the headers define, with the paths of its fields that are not fillers."""
    text = "".join(re.sub(r"/\*.*?\*/", " ", path.read_text(), flags=re.S) for path in paths)
    text = re.sub(r"//.*|^#.*$", " ", text, flags=re.M)
    words = _WORDS.findall(text)
    found: dict[str, list[str]] = {}
    for at, word in enumerate(words[:-2]):
        if word == "struct" and words[at + 2] == "{":
            fields, _ = _fields(words, at + 2, found)
            found[words[at + 1]] = [name for name in fields if not FILLERS.search(name)]
    return found


def _fields(words: list[str], at: int, known: dict[str, list[str]]) -> tuple[list[str], int]:
    """Of the struct whose "{" is words[at]: its leaves' paths, and the index past "}"."""
    found: list[str] = []
    at += 1
    while words[at] != "}":
        inner: list[str] = []
        if words[at] in ("struct", "union") and words[at + 1] == "{":
            inner, at = _fields(words, at + 1, known)
        elif words[at] in ("struct", "union"):
            inner, at = known.get(words[at + 1], []), at + 2
        else:
            at += 1
        if words[at] == ";":
            found += inner
            at += 1
            continue
        while True:
            name, at = words[at], at + 1
            is_array = words[at] == "["
            while words[at] == "[":
                at = words.index("]", at) + 1
            found += [f"{name}.{leaf}" for leaf in inner] if inner and not is_array else [name]
            at += 1
            if words[at - 1] == ";":
                break
    return found, at + 1


def unmapped(paths: Sequence[Path] = HEADERS, folder: Path = FACTS) -> list[str]:
    """Structs and fields of ours of which no row of decoded.tsv says what they are NVIDIA's."""
    known = {(row.struct, row.field) for row in decoded(folder)}
    found = []
    for struct, fields in structs(paths).items():
        if struct in OWN:
            continue
        if not any(name == struct for name, _ in known):
            found.append(f"struct {struct}")
            continue
        for name in fields:
            of_field = any(of == struct and re.split(r"\[", field)[0] == name for of, field in known)
            if not of_field:
                found.append(f"struct {struct}: {name}")
    return found
