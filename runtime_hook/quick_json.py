"""json.loads and json.dumps without the module json, whose import of re is a quarter of a container start's
Python.

The C parts that json itself runs on are used directly. They are CPython's own business: where they are
missing or made in another way, json does the work.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    Members = Callable[[list[tuple[str, Any]]], object]

_BLANKS = " \t\n\r"
_CONSTANTS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class _Settings:
    """The members of a json.JSONDecoder that the C scanner reads. members: makes an object of its members."""

    strict = True
    object_hook = None
    parse_float = float
    parse_int = int
    parse_constant = _CONSTANTS.__getitem__

    def __init__(self, members: Members | None) -> None:
        self.object_pairs_hook = members


_make_scanner: Callable[[_Settings], Callable[[str, int], tuple[Any, int]]] | None = None
_encode: Callable[[object, int], Iterable[str]] | None = None
try:
    _json: Any = __import__("_json")
    _make_scanner = _json.make_scanner
    _json.make_scanner(_Settings(None))
    _encode = _json.make_encoder(
        None, None, _json.encode_basestring_ascii, None, ":", ",", False, False, True
    )
except (ImportError, AttributeError, TypeError):
    _make_scanner = _encode = None


def loads(text: str, members: Members | None = None) -> Any:
    """The value that text spells; ValueError or RecursionError if it is not JSON."""
    if _make_scanner is not None:
        try:
            value, end = _make_scanner(_Settings(members))(text, len(text) - len(text.lstrip(_BLANKS)))
            if not text[end:].strip(_BLANKS):
                return value
        except (StopIteration, ValueError, SystemError):
            # The scanner takes its exception from json, and returns without one where that is not loaded.
            pass
    import json

    return json.loads(text, object_pairs_hook=members)


def dumps(value: Any) -> str:
    """value as JSON in ASCII without blanks."""
    if _encode is None:
        import json

        return json.dumps(value, separators=(",", ":"))
    return "".join(_encode(value, 0))
