"""native_sched/rm/interface.def as Python sees it, and as docs/rm-interface.md shows it.

`python -m tests.support.rm_interface` writes that page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.places import REPOSITORY

SOURCE = REPOSITORY / "native_sched" / "rm" / "interface.def"
PAGE = REPOSITORY / "docs" / "rm-interface.md"
VARIES = "RM_BYTES_"
_ROW = re.compile(r"^(BRANCH|KEY|BYTES|ESCAPE|UVM|CLASS|CONTROL|PASSED|LISTS)\((.*)\)$", re.MULTILINE)

Version = tuple[int, int]


@dataclass(frozen=True)
class Item:
    """An escape, a class or a control. size: bytes, the name of a size that varies, or None where it is not known."""

    name: str
    number: int
    size: int | str | None
    status_at: int | None = None


@dataclass(frozen=True)
class Interface:
    """sizes: for each that varies, what it is from which version on."""

    branches: tuple[Version, ...]
    sizes: dict[str, tuple[tuple[Version, int], ...]]
    escapes: tuple[Item, ...]
    uvm: tuple[Item, ...]
    classes: tuple[Item, ...]
    controls: tuple[Item, ...]
    passed: tuple[tuple[str, int], ...]
    lists: tuple[Item, ...]

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
    if text == f"{VARIES}UNKNOWN":
        return None
    return text.removeprefix(VARIES) if text.startswith(VARIES) else int(text, 0)


def read(path: Path = SOURCE) -> Interface:
    rows: dict[str, list[list[str]]] = {}
    for kind, inner in _ROW.findall(path.read_text()):
        rows.setdefault(kind, []).append([word.strip() for word in inner.split(",")])
    sizes: dict[str, tuple[tuple[Version, int], ...]] = {name: () for (name,) in rows["KEY"]}
    for name, major, minor, size in rows["BYTES"]:
        sizes[name] += (((int(major), int(minor)), int(size)),)
    return Interface(
        branches=tuple((int(major), int(minor)) for major, minor in rows["BRANCH"]),
        sizes=sizes,
        escapes=tuple(
            Item(name, int(number, 0), _size(size), None if at == "RM_NO_STATUS" else int(at, 0))
            for name, number, size, at in rows["ESCAPE"]
        ),
        uvm=tuple(Item(name, int(number, 0), _size(size) or None) for name, number, size in rows["UVM"]),
        classes=tuple(Item(name, int(number, 0), _size(size)) for name, number, size in rows["CLASS"]),
        controls=tuple(Item(name, int(number, 0), _size(size)) for name, number, size in rows["CONTROL"]),
        passed=tuple((name, int(number, 0)) for name, number in rows["PASSED"]),
        lists=tuple(Item(name, int(number, 0), _size(size)) for name, number, size, *_ in rows["LISTS"]),
    )


def _dotted(version: Version) -> str:
    return f"{version[0]}.{version[1]}"


def _shown(interface: Interface, size: int | str | None) -> str:
    if not isinstance(size, str):
        return "" if size is None else str(size)
    first, *later = interface.sizes[size]
    return ", ".join([str(first[1]), *(f"{found} from {_dotted(since)}" for since, found in later)])


def _table(interface: Interface, title: str, items: tuple[Item, ...], what: str) -> Iterator[str]:
    yield f"\n## {title}\n\n| name | number | {what} |\n|---|---|---|\n"
    for item in items:
        yield f"| {item.name} | {item.number:#x} | {_shown(interface, item.size)} |\n"


def page(interface: Interface) -> str:
    """docs/rm-interface.md."""
    return "".join(
        [
            "# The RM interface\n\n"
            "What mgpu knows of the ioctls of NVIDIA's driver. Made from `native_sched/rm/interface.def` by\n"
            "`tests/support/rm_interface.py`; a test compares them. Sizes are bytes, from the version named on.\n\n"
            "Known branches, each from this version on: "
            f"{', '.join(map(_dotted, interface.branches))}.\n"
            "mgpud refuses to start on any other, unless `driver_table` in [node.toml](node.md) says which one it is\n"
            "like.\n",
            *_table(interface, "Escapes", interface.escapes, "outer struct"),
            *_table(interface, "Classes", interface.classes, "parameters"),
            *_table(interface, "Controls", interface.controls, "parameters"),
            *_table(interface, "Controls that point to lists", interface.lists, "parameters"),
            "\n## Controls that are passed on\n\nWith parameters of the caller's size.\n\n"
            "| name | number |\n|---|---|\n",
            *(f"| {name} | {number:#x} |\n" for name, number in interface.passed),
            *_table(
                interface, "Commands of nvidia-uvm", interface.uvm, "parameters, where mgpu looks at them"
            ),
        ]
    )


if __name__ == "__main__":
    PAGE.write_text(page(read()))
