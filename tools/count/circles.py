"""Circles of C sources: by what they include, and by the symbols that the linker has of them.

A unit is a header with the source of the same name: what one includes, the other needs to be linked.
A circle is a set of two or more units that all reach one another.
"""

import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.MULTILINE)

Units = Mapping[str, set[str]]


def unit(name: str) -> str:
    return str(PurePosixPath(name).with_suffix(""))


def includes(base: Path, names: Iterable[str], roots: Iterable[str]) -> dict[str, set[str]]:
    """Each unit of `names` with those that it includes: names in quotes, beside the file or below `roots`."""
    known = set(names)
    found: dict[str, set[str]] = {unit(name): set() for name in known}
    for name in known:
        folder = PurePosixPath(name).parent
        for quoted in _INCLUDE.findall((base / name).read_text()):
            for start in (str(folder), *roots):
                target = _join(start, quoted)
                if target in known:
                    found[unit(name)].add(unit(target))
                    break
    return found


def links(build: Path) -> dict[str, dict[str, set[str]]]:
    """By program or library that meson built: each object of it with those that it needs symbols of."""
    return {
        folder.name.removesuffix(".p"): _of_objects(sorted(folder.glob("*.o")))
        for folder in sorted(build.rglob("*.p"))
    }


def _of_objects(objects: Iterable[Path]) -> dict[str, set[str]]:
    defined: dict[str, str] = {}
    needed: dict[str, set[str]] = {}
    for path in objects:
        needed[path.name] = set()
        listed = subprocess.check_output(["nm", "-P", path], text=True)
        for name, kind, *_ in map(str.split, listed.splitlines()):
            if kind == "U":
                needed[path.name].add(name)
            elif kind.isupper():
                defined[name] = path.name
    return {
        name: {defined[symbol] for symbol in symbols & defined.keys()} - {name}
        for name, symbols in needed.items()
    }


def _join(folder: str, quoted: str) -> str:
    parts: list[str] = []
    for part in [*PurePosixPath(folder).parts, *PurePosixPath(quoted).parts]:
        if part == ".." and parts:
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def circles(units: Units) -> list[set[str]]:
    """The circles, the largest first."""
    reached = {start: set(_reach(units, start)) for start in units}
    found: list[set[str]] = []
    seen: set[str] = set()
    for start in sorted(units):
        if start in seen or start not in reached[start]:
            continue
        circle = {other for other in reached[start] if start in reached[other]}
        seen |= circle
        if len(circle) > 1:
            found.append(circle)
    return sorted(found, key=len, reverse=True)


def _reach(units: Units, start: str) -> Iterator[str]:
    seen: set[str] = set()
    pending = list(units[start])
    while pending:
        name = pending.pop()
        if name not in seen:
            seen.add(name)
            yield name
            pending += units.get(name, set())
