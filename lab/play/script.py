"""Call scripts: what is asked of a driver, as text. docs/driver-differences.md says what the results are for.

    case NAME               begins a case: its files, processes and names end with it
    [NAME =] VERB WORD...   a call; NAME stands for the handle that RM chose, or for a file
    macro NAME ... end      lines that `use NAME` stands for
    repeat A B C: LINE      the line once for each word, which takes the place of %

A struct is its size and the fields that are not zero: 128 @0x18=1 @0x40:8=NAME. Behind `>` are the fields
that are printed: @0x18 as a number, @0x18~ as whether it is zero, where the number is the driver's own
choice.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

QUIET = "-"  # before a line of a macro, which is told of only when it fails
FIELD = re.compile(r"@(?P<at>\w+)(:(?P<bytes>\d+))?(=(?P<value>\S+))?(?P<hidden>~)?$")


@dataclass(frozen=True)
class Field:
    at: int
    bytes: int
    value: str
    masked: bool


@dataclass(frozen=True)
class Step:
    """A line: text as it is shown, `name` that the result gets, "in" which process it is done."""

    text: str
    name: str
    process: str
    verb: str
    words: tuple[str, ...]
    fields: tuple[Field, ...]
    shown: tuple[Field, ...]
    quiet: bool = False


@dataclass(frozen=True)
class Case:
    name: str
    steps: tuple[Step, ...]


def field(word: str) -> Field:
    found = FIELD.match(word)
    if not found:
        raise ValueError(f"{word}: not a field")
    width = int(found["bytes"] or 4)
    return Field(int(found["at"], 0), width, found["value"] or "", bool(found["hidden"]))


def step(line: str) -> Step:
    call, _, shown = line.partition(">")
    words = call.split()
    name = process = ""
    quiet = words[0] == QUIET
    words = words[quiet:]
    if words[0] == "in":
        process = words[1]
        words = words[2:]
    if len(words) > 1 and words[1] == "=":
        name = words[0]
        words = words[2:]
    plain = tuple(word for word in words[1:] if not word.startswith("@"))
    fields = tuple(field(word) for word in words[1:] if word.startswith("@"))
    return Step(
        " ".join(line.split()),
        name,
        process,
        words[0],
        plain,
        fields,
        tuple(field(word) for word in shown.split()),
        quiet,
    )


def lines(text: str, macros: dict[str, list[str]]) -> Iterator[str]:
    """Without comments, with macros and repeats in their place."""
    inside: list[str] | None = None
    for raw in text.splitlines():
        line = raw.partition("#")[0].strip()
        if not line:
            continue
        first, _, rest = line.partition(" ")
        if first == "macro":
            inside = macros.setdefault(rest, [])
        elif line == "end":
            inside = None
        elif inside is not None:
            inside.append(line)
        elif first == "use":
            yield from (
                f"{QUIET} {line.removeprefix(QUIET)}" for line in lines("\n".join(macros[rest]), macros)
            )
        elif first == "repeat":
            words, _, repeated = rest.partition(":")
            for word in words.split():
                yield repeated.strip().replace("%", word.replace(",", " "))
        else:
            yield line


def cases(folder: Path) -> dict[str, list[Case]]:
    """By script. The macros of common.play are every script's."""
    found: dict[str, list[Case]] = {}
    common: dict[str, list[str]] = {}
    list(lines((folder / "common.play").read_text(), common))
    for path in sorted(folder.glob("*.play")):
        if path.stem == "common":
            continue
        begun: list[tuple[str, list[Step]]] = []
        for line in lines(path.read_text(), {name: list(body) for name, body in common.items()}):
            first, _, rest = line.partition(" ")
            if first == "case":
                begun.append((rest, []))
            else:
                begun[-1][1].append(step(line))
        found[path.stem] = [Case(name, tuple(steps)) for name, steps in begun]
    return found
