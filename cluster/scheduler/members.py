"""Members of the API's objects that may be missing, null, or of another type than they should be."""

from collections.abc import Mapping
from typing import Any


def members(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def items(value: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    found = value.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def texts(value: Mapping[str, Any], name: str) -> dict[str, str]:
    return {key: text for key, text in members(value, name).items() if isinstance(text, str)}
