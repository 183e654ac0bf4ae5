"""interface.def as Python sees it, and as docs/rm-interface.md shows it.

`python -m tests.support.rm_interface` writes that page.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.places import REPOSITORY
from tools.abi.interface import CAPABILITIES

SOURCE = REPOSITORY / "native_sched/nvidia/rm" / "interface.def"
PAGE = REPOSITORY / "docs" / "rm-interface.md"
VARIES = "RM_BYTES_"
REFUSED = "REFUSED"
DISPOSITIONS = ("PASSED", "MEDIATED", "ANSWERED", "REFUSED")
_ROW = re.compile(r"^(BRANCH|KEY|BYTES|ESCAPE|UVM|CLASS|CONTROL)\((.*)\)$", re.MULTILINE)
_LIFE = re.compile(r", (SINCE|UNTIL)\((\d+), (\d+)\)")
_FLAG = re.compile(
    r", (?:CHANGES|EXECUTED|CONTINUED|NAMES_FILE|SIZELESS|IN_PLACE|UNLISTED"
    r"|(?:WHOLE|VIDEO|GRAPHICS|MEDIA)\(\w+\)|(?:(?:PARAMS|POINTER|CLASS|CONTROL)_AT|STATUS_FROM_END)\([^)]*\))(?=,|$)"
)
_STATUS = re.compile(r"\b(?:REFUSED|WHOLE|VIDEO|GRAPHICS|MEDIA)\((\w+)\)")
_LISTS = re.compile(r", LISTS\((\d+), (\d+)\)")
# Of a disposition: the handler and what it looks at, or the status.
_OF_DISPOSITION = re.compile(r"(?<=MEDIATED|ANSWERED)\((?:[^()]|\([^()]*\))*\)|(?<=REFUSED)\(\w+\)")
_ARRAY = re.compile(r"RM_ARRAY_OF\((\d+)\)")
_RENUMBERED = re.compile(r"_V\d+$")
# Words of a row before its disposition.
_BEFORE_DISPOSITION = {"ESCAPE": 4, "UVM": 3, "CONTROL": 3}
CALLERS = "RM_BYTES_CALLERS"

Version = tuple[int, int]


class RowError(Exception):
    """A row that says too little, in one line."""


@dataclass(frozen=True)
class Item:
    """An escape, a class or a control. size: bytes, the name of a size that varies, or None where it is not
    known.

    array: of each of any number of elements. disposition: of all but classes. callers: of a control whose
    parameters are as large as the caller says. lists: how many they point to, and an element's size.
    status: NVIDIA's name of what a refused one is answered with. kind: of a class. sizeless: of an escape,
    which is refused without a size. whole: for whole cards alone; others get the status. capability: for
    those with that driver capability; others get the status.
    """

    name: str
    number: int
    size: int | str | None
    status_at: int | None = None
    disposition: str = ""
    array: bool = False
    callers: bool = False
    lists: tuple[int, int] | None = None
    status: str = ""
    kind: str = ""
    sizeless: bool = False
    whole: bool = False
    capability: str = ""

    @property
    def symbol(self) -> str:
        """NVIDIA's name, which is that of every number it has had."""
        return _RENUMBERED.sub("", self.name)


@dataclass(frozen=True)
class Interface:
    """sizes: for each that varies, what it is from which version on. lives: of the rows that are not of every
    version, the first that has it and the first that has it no more.
    """

    branches: tuple[Version, ...]
    sizes: dict[str, tuple[tuple[Version, int], ...]]
    escapes: tuple[Item, ...]
    uvm: tuple[Item, ...]
    classes: tuple[Item, ...]
    controls: tuple[Item, ...]
    lives: dict[str, tuple[Version | None, Version | None]]

    def lives_at(self, name: str, version: Version) -> bool:
        since, until = self.lives.get(name, (None, None))
        return (since is None or since <= version) and (until is None or version < until)

    def all_sizes(self, size: int | str | None) -> set[int]:
        """Every size it has in any known version."""
        if isinstance(size, str):
            return {found for _, found in self.sizes[size]}
        return set() if size is None else {size}

    def size_at(self, size: int | str | None, version: Version) -> int | None:
        if isinstance(size, str):
            return [found for since, found in self.sizes[size] if since <= version][-1]
        return size

    def points(self) -> list[Version]:
        """The versions at which something changed."""
        return sorted({since for changes in self.sizes.values() for since, _ in changes})


def _size(text: str) -> int | str | None:
    if text in (f"{VARIES}UNKNOWN", CALLERS):
        return None
    return text.removeprefix(VARIES) if text.startswith(VARIES) else int(text, 0)


def _disposed(kind: str, words: list[str]) -> None:
    if kind == "CLASS" and len(words) < 4:
        raise RowError(f"interface.def: {words[0]} has no kind: OTHER, if nothing")
    count = _BEFORE_DISPOSITION.get(kind)
    if count is not None and (len(words) <= count or words[count] not in DISPOSITIONS):
        raise RowError(f"interface.def: {words[0]} has no disposition: {', '.join(DISPOSITIONS)}")


def _escape(words: list[str], *, sizeless: bool, whole: bool) -> Item:
    name, number, size, at, disposition = words
    array = _ARRAY.fullmatch(size)
    return Item(
        name,
        int(number, 0),
        int(array[1]) if array else _size(size),
        None if at == "RM_NO_STATUS" else int(at, 0),
        disposition,
        array is not None,
        sizeless=sizeless,
        whole=whole,
    )


def read(path: Path = SOURCE) -> Interface:
    rows: dict[str, list[list[str]]] = {}
    lives: dict[str, tuple[Version | None, Version | None]] = {}
    lists: dict[str, tuple[int, int]] = {}
    status: dict[str, str] = {}
    sizeless: set[str] = set()
    whole: set[str] = set()
    capability: dict[str, str] = {}
    for kind, inner in _ROW.findall(path.read_text()):
        words = [
            word.strip()
            for word in _FLAG.sub("", _OF_DISPOSITION.sub("", _LISTS.sub("", _LIFE.sub("", inner)))).split(
                ","
            )
        ]
        _disposed(kind, words)
        rows.setdefault(kind, []).append(words)
        if refused := _STATUS.search(inner):
            status[words[0]] = refused[1]
        if of := _LISTS.search(inner):
            lists[words[0]] = (int(of[1]), int(of[2]))
        if ", SIZELESS" in inner:
            sizeless.add(words[0])
        if ", WHOLE(" in inner:
            whole.add(words[0])
        for column, named in CAPABILITIES.items():
            if f", {column}" in inner:
                capability[words[0]] = named
        life = {which: (int(major), int(minor)) for which, major, minor in _LIFE.findall(inner)}
        if life:
            lives[words[0]] = (life.get("SINCE"), life.get("UNTIL"))
    sizes: dict[str, tuple[tuple[Version, int], ...]] = {name: () for (name,) in rows["KEY"]}
    for name, major, minor, size in rows["BYTES"]:
        sizes[name] += (((int(major), int(minor)), int(size)),)
    return Interface(
        branches=tuple((int(major), int(minor)) for major, minor in rows["BRANCH"]),
        sizes=sizes,
        escapes=tuple(
            _escape(words, sizeless=words[0] in sizeless, whole=words[0] in whole)
            for words in rows["ESCAPE"]
        ),
        uvm=tuple(
            Item(name, int(number, 0), _size(size) or None, disposition=disposition, whole=name in whole)
            for name, number, size, disposition in rows["UVM"]
        ),
        classes=tuple(
            Item(
                name,
                int(number, 0),
                _size(size),
                disposition=kind if kind == REFUSED else "",
                status=status.get(name, ""),
                kind=kind,
                whole=name in whole,
                capability=capability.get(name, ""),
            )
            for name, number, size, kind in rows["CLASS"]
        ),
        controls=tuple(
            Item(
                name,
                int(number, 0),
                _size(size),
                disposition=disposition,
                callers=size == CALLERS,
                lists=lists.get(name),
                status=status.get(name, ""),
                whole=name in whole,
                capability=capability.get(name, ""),
            )
            for name, number, size, disposition in rows["CONTROL"]
        ),
        lives=lives,
    )


def numbers(path: Path = SOURCE) -> dict[str, int]:
    """By symbol: statuses, escapes, commands of nvidia-uvm, classes, controls."""
    found = re.findall(r"^(?:STATUS|ESCAPE|UVM|CLASS|CONTROL)\((\w+), (\w+)", path.read_text(), re.MULTILINE)
    return {symbol: int(number, 0) for symbol, number in found}


def _dotted(version: Version) -> str:
    return f"{version[0]}.{version[1]}"


def _shown(interface: Interface, size: int | str | None) -> str:
    if not isinstance(size, str):
        return "" if size is None else str(size)
    first, *later = interface.sizes[size]
    return ", ".join([str(first[1]), *(f"{found} from {_dotted(since)}" for since, found in later)])


def _life(interface: Interface, name: str) -> str:
    since, until = interface.lives.get(name, (None, None))
    said = [f"from {_dotted(since)}"] if since else []
    return ", ".join([*said, *([f"before {_dotted(until)}"] if until else [])])


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"


def _title(title: str, *cells: str) -> str:
    return f"\n## {title}\n\n{_row(*cells)}{'|---' * len(cells)}|\n"


def _for(item: Item) -> str:
    return item.capability or ("whole cards" if item.whole else "")


def _classes(interface: Interface) -> Iterator[str]:
    yield _title("Classes", "symbol", "number", "parameters", "kind", "for", "drivers")
    for item in interface.classes:
        kind = "" if item.kind == "OTHER" else item.kind.lower().replace("_", " ")
        size = _shown(interface, item.size)
        yield _row(item.name, f"{item.number:#x}", size, kind, _for(item), _life(interface, item.name))


def _controls(interface: Interface) -> Iterator[str]:
    yield _title("Controls", "symbol", "number", "parameters", "disposition", "for", "drivers")
    for item in interface.controls:
        size = "the caller's" if item.callers else _shown(interface, item.size)
        if item.lists:
            size += ", and {} lists of {} bytes an element".format(*item.lists)
        disposition, life = item.disposition.lower(), _life(interface, item.name)
        yield _row(item.name, f"{item.number:#x}", size, disposition, _for(item), life)


def _calls(interface: Interface, title: str, items: tuple[Item, ...], what: str) -> Iterator[str]:
    yield _title(title, "symbol", "number", what, "disposition", "for")
    for item in items:
        size = _shown(interface, item.size) + (" each" if item.array else "")
        yield _row(item.name, f"{item.number:#x}", size, item.disposition.lower(), _for(item))


def page(interface: Interface) -> str:
    """docs/rm-interface.md."""
    return "".join(
        [
            "# The RM interface\n\n"
            "What mgpu knows of the ioctls of NVIDIA's driver. Made from `native_sched/nvidia/rm/interface.def` by\n"
            "`tests/support/rm_interface.py`; a test compares them. Sizes are bytes, from the version named on; a row\n"
            "that names drivers stands for those alone, and is refused on others.\n\n"
            "Known branches, each from this version on: "
            f"{', '.join(map(_dotted, interface.branches))}.\n"
            "mgpud refuses to start on any other, unless `driver_table` in [node.toml](node.md) says which one it is\n"
            "like.\n\n"
            "Of the escapes and the commands of nvidia-uvm, those that are *passed* reach the driver as they are,\n"
            "*mediated* ones the mediator, which decides; what is *answered* gets ENOTTY, what is *refused* EPERM.\n"
            "Of controls, *passed* ones are executed with a copy of their parameters, *answered* ones get what a\n"
            "container is to see, *refused* ones an RM status. The reasons stand beside the rows. Classes and\n"
            "controls that are not here are refused. What is for *whole cards* is refused to containers whose cards\n"
            "others may be on, and what is for *video* or *graphics* to those without that\n"
            "[driver capability](node.md#driver-capabilities).\n",
            *_calls(interface, "Escapes", interface.escapes, "outer struct"),
            *_classes(interface),
            *_controls(interface),
            *_calls(
                interface, "Commands of nvidia-uvm", interface.uvm, "parameters, where mgpu looks at them"
            ),
        ]
    )


if __name__ == "__main__":
    PAGE.write_text(page(read()))
