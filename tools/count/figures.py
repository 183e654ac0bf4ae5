"""What `make count` prints of a tree."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from tools.count.circles import circles, includes, unit
from tools.count.lines import C_SUFFIXES, MAX_COLUMNS, code_lines, identifiers, wide_comments

# The arbiter: native_sched, and what was moved out of it.
ARBITER = ("native_sched", "base", "rm")
# Where docs/glossary.md's table of identifiers holds.
NAMED_BY_GLOSSARY = (*ARBITER, "runtime_hook")
# It plays the driver: what it has to say of an escape is not for the arbiter to repeat.
SIMULATOR = "sim"
# Where quoted includes start, besides the file's own folder: see the meson.build files.
INCLUDE_ROOTS = (".",)
ESCAPE = re.compile(r"\b(NV_ESC_)?RM_DUP_OBJECT\b")
POLICY = re.compile("guaranteed", re.IGNORECASE)
# Facts, tests, texts and examples name an escape or a policy to speak of it or to use it as a user does;
# nothing there decides anything. Older commits have the facts below native_sched.
NOT_PLACES = ("demo", "docs", "cluster/manifests", "native_sched/rm/facts", "rm/facts", "tests", "tools")
TEXTS = frozenset({".md"})
LABEL_COLUMNS = 42
GENERATED = re.compile(r"(#|//|/\*) ?(Generated|Made) by ")


class Room(NamedTuple):
    """A folder with its own files, without those of its folders."""

    folder: str
    lines: int
    files: int


class Figures(NamedTuple):
    code_lines: int
    circle_files: int
    largest_room: Room
    escape_places: tuple[str, ...]
    policy_places: tuple[str, ...]
    wide_comments: int
    replaced_names: tuple[str, ...]

    def text(self) -> str:
        room = self.largest_room
        simulated = [place for place in self.escape_places if place.startswith(f"{SIMULATOR}/")]
        rows = [
            ("code lines of the arbiter", str(self.code_lines)),
            ("files in the largest circle of C includes", str(self.circle_files)),
            ("largest room", f"{room.lines} code lines, {room.files} files: {room.folder}"),
            (
                "places that name one escape",
                f"{len(self.escape_places) - len(simulated)}, and {len(simulated)} of the simulated driver",
            ),
            *(("", place) for place in self.escape_places),
            ("places that name one policy", str(len(self.policy_places))),
            *(("", place) for place in self.policy_places),
            (f"comment lines over {MAX_COLUMNS} columns", str(self.wide_comments)),
            ("identifiers that the glossary replaces", str(len(self.replaced_names))),
        ]
        return "".join(f"{label:{LABEL_COLUMNS}}  {value}\n" for label, value in rows)


def replaced(glossary: str) -> tuple[str, ...]:
    """The left column of the glossary's table of identifiers."""
    table = glossary.partition("\n## Identifiers\n")[2].partition("\n## ")[0]
    return tuple(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))


def figures(base: Path, names: Iterable[str], glossary: str = "") -> Figures:
    """Of the files `names` below `base`, without generated ones."""
    names = sorted(names)
    sources = [
        name
        for name in names
        if PurePosixPath(name).suffix in C_SUFFIXES | {".py"} and not _generated(base / name)
    ]
    arbiter = [name for name in sources if name.partition("/")[0] in ARBITER]
    lines = {name: code_lines(base / name) for name in arbiter}
    return Figures(
        code_lines=sum(lines.values()),
        circle_files=_circle_files(base, sources),
        largest_room=_largest_room(lines),
        escape_places=tuple(_places(base, names, ESCAPE)),
        policy_places=tuple(_places(base, names, POLICY)),
        wide_comments=sum(len(wide_comments(base / name)) for name in sources),
        replaced_names=tuple(sorted(_replaced_names(base, sources, replaced(glossary)))),
    )


def _replaced_names(base: Path, sources: Iterable[str], old: tuple[str, ...]) -> set[str]:
    """Identifiers that begin with one of `old`, as whole words of theirs."""
    return {
        found
        for name in sources
        if name.partition("/")[0] in NAMED_BY_GLOSSARY
        for found in identifiers(base / name)
        if found.startswith(old) and any(found == word or found.startswith(f"{word}_") for word in old)
    }


def _generated(path: Path) -> bool:
    with path.open() as file:
        return GENERATED.match(file.readline()) is not None


def _circle_files(base: Path, sources: Iterable[str]) -> int:
    product = [
        name
        for name in sources
        if PurePosixPath(name).suffix in C_SUFFIXES and name.partition("/")[0] != "tests"
    ]
    found = circles(includes(base, product, INCLUDE_ROOTS))
    units = found[0] if found else set()
    return sum(unit(name) in units for name in product)


def _largest_room(lines: dict[str, int]) -> Room:
    rooms: defaultdict[str, list[int]] = defaultdict(list)
    for name, count in lines.items():
        rooms[str(PurePosixPath(name).parent)].append(count)
    return max(
        (Room(folder, sum(counts), len(counts)) for folder, counts in rooms.items()),
        key=lambda room: room.lines,
    )


def _places(base: Path, names: Iterable[str], word: re.Pattern[str]) -> Iterator[str]:
    for name in names:
        path = base / name
        if path.suffix in TEXTS or any(name.startswith(f"{folder}/") for folder in NOT_PLACES):
            continue
        if word.search(path.read_text(errors="replace")):
            yield name
