"""Adding a member to a JSON object and taking it away, with every other byte of the text as it is."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from oci_specs.refusal import Refusal

DEFAULT_INDENT = "    "
_DECODER = json.JSONDecoder()
_BLANKS = re.compile(r"[ \t\n\r]*")
_INDENT_OF_FIRST = re.compile(r"\A\s*\{[ \t\r]*\n(?P<indent>[ \t]+)")


@dataclass(frozen=True)
class Member:
    """Where one member of an object lies in the text: from its name to the end of its value."""

    name: str
    start: int
    value: int
    end: int


@dataclass(frozen=True)
class Object:
    """Where an object lies: after its opening brace, its members, and its closing brace."""

    inside: int
    members: tuple[Member, ...]
    close: int

    def member(self, name: str) -> Member | None:
        return next((member for member in self.members if member.name == name), None)


def parsed(text: str, path: Path) -> dict[str, Any]:
    """The object in the text, empty for an empty text; Refusal when there is none."""
    if not text.strip():
        return {}
    try:
        document = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_once)
    except ValueError as error:
        raise Refusal(
            "bad-config", f"{path} is not valid JSON: {error}", "correct it; nothing was changed"
        ) from error
    if not isinstance(document, dict):
        raise Refusal("bad-config", f"{path} is not a JSON object", "correct it; nothing was changed")
    return document


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Which of two counts is left to the reader by the JSON standard: the engine's and ours may differ.
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f'"{name}" stands there twice')
    return dict(pairs)


def object_at(text: str, position: int) -> Object:
    """The object whose opening brace is at or after position, past blanks. The text is known to be valid."""
    inside = _after_blanks(text, position) + 1
    at = _after_blanks(text, inside)
    members = []
    while text[at] != "}":
        name, end = _DECODER.raw_decode(text, at)
        value = _after_blanks(text, _after_blanks(text, end) + 1)
        _, end = _DECODER.raw_decode(text, value)
        members.append(Member(name, at, value, end))
        at = _after_blanks(text, end)
        if text[at] == ",":
            at = _after_blanks(text, at + 1)
    return Object(inside, tuple(members), at)


def _after_blanks(text: str, position: int) -> int:
    found = _BLANKS.match(text, position)
    assert found is not None
    return found.end()


def with_member(text: str, keys: Sequence[str], value: Any) -> str:
    """text with `value` at keys: in place of what is there, else as the last member of its object.

    Objects on the way are made. The text is valid, or empty; what is on the way is an object.
    """
    if not text.strip():
        return _nested_text(keys, value, DEFAULT_INDENT, 0) + "\n"
    unit = _unit(text)
    here = object_at(text, 0)
    for depth, key in enumerate(keys):
        member = here.member(key)
        if member is None:
            return _appended(text, here, keys[depth:], value, unit, depth)
        if depth == len(keys) - 1:
            return text[: member.value] + _dumped(value, unit, depth + 1) + text[member.end :]
        here = object_at(text, member.value)
    raise ValueError("no keys")


def _unit(text: str) -> str | None:
    """What one level is indented by; None when the object stands on one line."""
    found = _INDENT_OF_FIRST.match(text)
    if found:
        return found["indent"]
    return DEFAULT_INDENT if "\n" in text.strip() or not object_at(text, 0).members else None


def _appended(text: str, here: Object, keys: Sequence[str], value: Any, unit: str | None, depth: int) -> str:
    nested: Any = value
    for key in reversed(keys[1:]):
        nested = {key: nested}
    fresh = f"{json.dumps(keys[0], ensure_ascii=False)}: {_dumped(nested, unit, depth + 1)}"
    newline = " " if unit is None else "\n" + unit * (depth + 1)
    if here.members:
        end = here.members[-1].end
        return f"{text[:end]},{newline}{fresh}{text[end:]}"
    # An empty object's own blanks give way: there is nothing in them to keep.
    closing = "" if unit is None else "\n" + unit * depth
    opening = "" if unit is None else newline
    return f"{text[: here.inside]}{opening}{fresh}{closing}{text[here.close :]}"


def _nested_text(keys: Sequence[str], value: Any, unit: str | None, depth: int) -> str:
    for key in reversed(keys):
        value = {key: value}
    return _dumped(value, unit, depth)


def _dumped(value: Any, unit: str | None, depth: int) -> str:
    shown = json.dumps(value, indent=unit, ensure_ascii=False)
    return shown.replace("\n", "\n" + (unit or "") * depth)


def without_member(text: str, keys: Sequence[str]) -> str:
    """text without the member at keys, and without objects above it that are empty then. It is there."""
    here = object_at(text, 0)
    trail = []
    for key in keys:
        member = here.member(key)
        if member is None:
            raise KeyError(".".join(keys))
        trail.append((here, member))
        if text[member.value] == "{":
            here = object_at(text, member.value)
    while len(trail) > 1 and len(trail[-1][0].members) == 1:
        trail.pop()
    here, member = trail[-1]
    index = here.members.index(member)
    if index > 0:
        return text[: here.members[index - 1].end] + text[member.end :]
    if len(here.members) > 1:
        return text[: member.start] + text[here.members[1].start :]
    return text[: here.inside] + text[here.close :]
