"""What `make count` prints of a tree."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from tools.count.circles import circles, includes, links, unit
from tools.count.lines import (
    C_SUFFIXES,
    MAX_COLUMNS,
    code_lines,
    identifiers,
    torn_members,
    wide_comments,
)
from tools.count.unused import unused

# The arbiter: native_sched, and what was moved out of it.
ARBITER = ("native_sched", "base", "rm")
# Code lines are counted by these: folders, the longest that a file lies below.
PRODUCTS = {
    "arbiter": ARBITER,
    "node": ("containerd_api", "install", "mgpu_cli", "oci_specs", "placement", "runtime_hook", "shim"),
    "cluster": ("cluster",),
    "simulator": ("demo", "load", "sim"),
    "laboratory": ("lab",),
    "kit": ("tests/gpu",),
    "tests": ("tests",),
    "tools": ("tools",),
}
# It plays the driver: what it has to say of an escape is not for the arbiter to repeat.
SIMULATOR = "sim"
# Where quoted includes start, besides the file's own folder: see the meson.build files.
INCLUDE_ROOTS = (".",)
ESCAPE = re.compile(r"\b(NV_ESC_)?RM_DUP_OBJECT\b")
# docs/glossary.md: a test's name is subject and expectation.
ARTICLE = re.compile(r"^ *def test_(?:an?|the)_", re.MULTILINE)
POLICY = re.compile("guaranteed", re.IGNORECASE)
# Facts, tests, texts and examples name an escape or a policy to speak of it or to use it as a user does;
# nothing there decides anything. Older commits have rm at the top.
NOT_PLACES = (
    "demo",
    "docs",
    "cluster/manifests",
    "native_sched/nvidia/rm/facts",
    "rm/facts",
    "tests",
    "tools",
)
TEXTS = frozenset({".md"})
LABEL_COLUMNS = 64
GENERATED = re.compile(r"(#|//|/\*) ?(Generated|Made) by ")


class Room(NamedTuple):
    """A folder with its own files, without those of its folders."""

    folder: str
    lines: int
    files: int


class Figures(NamedTuple):
    code_lines: dict[str, int]  # by product
    circle_files: int
    largest_room: Room
    escape_places: tuple[str, ...]
    policy_places: tuple[str, ...]
    wide_comments: int
    torn_members: int
    article_tests: int
    replaced_names: tuple[str, ...]
    unused_names: tuple[str, ...]
    link_circles: dict[str, tuple[int, ...]]  # by program, the objects of each; empty without a build

    @property
    def simulated_places(self) -> tuple[str, ...]:
        return tuple(place for place in self.escape_places if place.startswith(f"{SIMULATOR}/"))

    def numbers(self) -> dict[str, int]:
        """Each figure by the name that it has in ceilings.tsv."""
        return {
            **{f"code lines: {product}": lines for product, lines in self.code_lines.items()},
            "code lines of the largest room": self.largest_room.lines,
            "files in the largest circle of C includes": self.circle_files,
            **{f"objects in circles of symbols: {name}": sum(n) for name, n in self.link_circles.items()},
            "places that name one escape": len(self.escape_places) - len(self.simulated_places),
            "of the simulated driver, too": len(self.simulated_places),
            "places that name one policy": len(self.policy_places),
            f"comment lines over {MAX_COLUMNS} columns": self.wide_comments,
            "members of structs that go on in another line": self.torn_members,
            "tests whose name begins with an article": self.article_tests,
            "identifiers that the glossary replaces": len(self.replaced_names),
            "names that nothing uses": len(self.unused_names),
        }

    def text(self) -> str:
        beside = {
            "code lines of the largest room": [
                f"{self.largest_room.folder}, {self.largest_room.files} files"
            ],
            "places that name one escape": [p for p in self.escape_places if p not in self.simulated_places],
            "of the simulated driver, too": self.simulated_places,
            "places that name one policy": self.policy_places,
            "identifiers that the glossary replaces": self.replaced_names,
            "names that nothing uses": self.unused_names,
            **{
                f"objects in circles of symbols: {name}": [" and ".join(map(str, sizes))]
                for name, sizes in self.link_circles.items()
                if len(sizes) > 1
            },
        }
        return "".join(
            f"{name:{LABEL_COLUMNS}}  {number}\n"
            + "".join(f"{'':{LABEL_COLUMNS}}  {line}\n" for line in beside.get(name, ()))
            for name, number in self.numbers().items()
        )


def replaced(glossary: str) -> tuple[str, ...]:
    """The left column of the glossary's table of identifiers."""
    table = glossary.partition("\n## Identifiers\n")[2].partition("\n## ")[0]
    return tuple(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))


def figures(base: Path, names: Iterable[str], glossary: str = "", build: Path | None = None) -> Figures:
    """Of the files `names` below `base`, without generated ones; `build`: where meson built them."""
    names = sorted(names)
    sources = [
        name
        for name in names
        if PurePosixPath(name).suffix in C_SUFFIXES | {".py"} and not _generated(base / name)
    ]
    lines = {name: code_lines(base / name) for name in sources}
    return Figures(
        code_lines={
            product: sum(count for name, count in lines.items() if _product(name) == product)
            for product in PRODUCTS
        },
        circle_files=_circle_files(base, sources),
        largest_room=_largest_room({name: n for name, n in lines.items() if _product(name) == "arbiter"}),
        escape_places=tuple(_places(base, names, ESCAPE)),
        policy_places=tuple(_places(base, names, POLICY)),
        wide_comments=sum(len(wide_comments(base / name)) for name in sources),
        torn_members=sum(len(torn_members((base / name).read_text())) for name in sources if _is_c(name)),
        article_tests=sum(
            len(ARTICLE.findall((base / name).read_text())) for name in sources if name.startswith("tests/")
        ),
        replaced_names=tuple(sorted(_replaced_names(base, sources, replaced(glossary)))),
        unused_names=tuple(unused(base, names, sources)),
        link_circles={
            program: tuple(map(len, circles(objects)))
            for program, objects in (links(build) if build else {}).items()
        },
    )


def _is_c(name: str) -> bool:
    return PurePosixPath(name).suffix in C_SUFFIXES


def _product(name: str) -> str:
    folders = ((product, folder) for product, all_of in PRODUCTS.items() for folder in all_of)
    inside = [(len(folder), product) for product, folder in folders if name.startswith(f"{folder}/")]
    return max(inside, default=(0, ""))[1]


def _replaced_names(base: Path, sources: Iterable[str], old: tuple[str, ...]) -> set[str]:
    """Identifiers that begin with one of `old`, as whole words of theirs."""
    return {
        found
        for name in sources
        for found in identifiers(base / name)
        if found.startswith(old) and any(found == word or found.startswith(f"{word}_") for word in old)
    }


def _generated(path: Path) -> bool:
    with path.open() as file:
        return GENERATED.match(file.readline()) is not None


def _circle_files(base: Path, sources: Iterable[str]) -> int:
    product = [name for name in sources if _is_c(name) and name.partition("/")[0] != "tests"]
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
