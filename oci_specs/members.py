"""Reads members of foreign JSON: absent equals null, as in Go; a wrong type is a Refusal."""

from __future__ import annotations

from oci_specs.refusal import Refusal, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_KINDS = {dict: "an object", list: "an array", str: "a string", int: "a number"}


def member_object(parent: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The object at name; empty if absent."""
    value: dict[str, Any] | None = _typed(parent, name, dict)
    return {} if value is None else value


def member_objects(parent: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """The array of objects at name; empty if absent."""
    value: list[dict[str, Any]] | None = _typed(parent, name, list)
    if value is None:
        return []
    for item in value:
        if not isinstance(item, dict):
            raise _wrong(name, item, "an array of objects")
    return value


def member_strings(parent: Mapping[str, Any], name: str) -> list[str]:
    """The array of strings at name; empty if absent."""
    value: list[str] | None = _typed(parent, name, list)
    if value is None:
        return []
    for item in value:
        if not isinstance(item, str):
            raise _wrong(name, item, "an array of strings")
    return value


def member_texts(parent: Mapping[str, Any], name: str) -> dict[str, str]:
    """The object of strings at name; empty if absent."""
    value = member_object(parent, name)
    for item in value.values():
        if not isinstance(item, str):
            raise _wrong(name, item, "an object of strings")
    return value


def member_string(parent: Mapping[str, Any], name: str) -> str:
    """The string at name; "" if absent."""
    value: str | None = _typed(parent, name, str)
    return "" if value is None else value


def member_number(parent: Mapping[str, Any], name: str) -> int | None:
    """The whole number at name; None if absent."""
    value: int | None = _typed(parent, name, int)
    if isinstance(value, bool):
        raise _wrong(name, value, "a number")
    return value


def _typed(parent: Mapping[str, Any], name: str, kind: type) -> Any:
    value = parent.get(name)
    if value is not None and not isinstance(value, kind):
        raise _wrong(name, value, _KINDS[kind])
    return value


def _wrong(name: str, value: object, expected: str) -> Refusal:
    return Refusal(
        "bad-spec", f'"{name}" is {quoted(value)}, not {expected}', "give a spec that follows its schema"
    )
