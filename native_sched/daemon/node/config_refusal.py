"""The words of refusals of node.toml: which key or line, what it says, what is allowed there."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from oci_specs import schemas
from oci_specs.refusal import Refusal, quoted

_CODE = "bad-node-config"
_TOMLLIB_MESSAGE = re.compile(
    r"(?P<what>.*) \(at (?:line (?P<line>\d+), column \d+|end of document)\)", re.DOTALL
)


def unreadable(error: OSError) -> Refusal:
    return Refusal(_CODE, str(error.strerror), "make it a file that can be read")


def not_toml(data: bytes, error: ValueError) -> Refusal:
    """For what decoding the file's data or tomllib raised. tomllib names the line only in its message."""
    hint = "correct that line"
    if isinstance(error, UnicodeDecodeError):
        line = data.count(b"\n", 0, error.start) + 1
        return Refusal(_CODE, f"line {line} is not UTF-8", hint)
    if not isinstance(error, tomllib.TOMLDecodeError):
        return Refusal(_CODE, "a number in it is too long", "write a shorter one")
    found = _TOMLLIB_MESSAGE.fullmatch(str(error))
    if found is None:
        return Refusal(_CODE, f"it is not TOML: {error}", "correct it")
    # A part that is missing at the end is reported after the last line with text.
    number = int(found["line"] or data.rstrip().count(b"\n") + 1)
    what = found["what"]
    if what == "Cannot overwrite a value":
        key = data.decode().split("\n")[number - 1].partition("=")[0].strip()
        return Refusal(_CODE, f"line {number} sets {quoted(key)} once more", "leave one of the two")
    return Refusal(_CODE, f"line {number} is not TOML: {what[:1].lower()}{what[1:]}", hint)


def bad_table(table: Mapping[str, Any], path: Sequence[str]) -> Refusal:
    """The refusal for the fault that node_config.schema.json finds at path; empty path: an unknown key."""
    properties = schemas.load("node_config")["properties"]
    if not path:
        unknown = next(name for name in table if name not in properties)
        return Refusal(_CODE, f"{quoted(unknown)} is not a key", f"allowed: {', '.join(properties)}")
    name, *inner = path
    value, verb = table[name], "is"
    if inner:
        value, verb = value[int(inner[0])], "has"
    return Refusal(_CODE, f"{name} {verb} {_shown(value)}", f"allowed: {_allowed(properties[name])}")


def _allowed(schema: Mapping[str, Any]) -> str:
    """In words, what a key's schema allows."""
    if "$ref" in schema:
        return _allowed(schemas.load(schema["$ref"].partition(".")[0]))
    if "enum" in schema:
        return ", ".join(schema["enum"])
    if schema["type"] == "boolean":
        return "true or false"
    if schema["type"] == "string":
        return str(schema["description"])
    if schema["type"] == "integer":
        return f"a whole number from {schema['minimum']} to {schema['maximum']}"
    return f"a list of {schema['items']['description']}"


def _shown(value: object) -> str:
    """The value as TOML has it, as far as it fits on a line: people look for it in their file."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "a list"
    return "a table" if isinstance(value, dict) else str(value)
