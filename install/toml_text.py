"""Adding tables to a TOML file: what others wrote stays as it is, comments included."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from install import block
from install.edit import Edited, NotHere
from oci_specs.refusal import Refusal, quoted

Toml = dict[str, Any]
_BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


def parsed(text: str, path: Path) -> Toml:
    """The document; Refusal when it is not TOML."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Refusal(
            "bad-config", f"{path} is not valid TOML: {error}", "correct it; nothing was changed"
        ) from error


def at(document: Toml, keys: Sequence[str]) -> Any:
    """What lies at keys; None if there is nothing."""
    for key in keys:
        if not isinstance(document, dict) or key not in document:
            return None
        document = document[key]
    return document


def with_table(
    text: str,
    path: Path,
    keys: Sequence[str],
    table: Mapping[str, Any],
    uninstall: str,
    *,
    beside: Mapping[str, Mapping[str, Any]] | None = None,
) -> Edited:
    """text with `table` at `keys`, in a block that `without` takes away.

    beside: tables that are to be there with it, by the name that stands in place of the last key. Refusal
    when something else than what a block of ours says lies there, or no table can be added there.
    """
    old = block.removed(text)
    before = text if old is None else old.text
    document = parsed(before, path)
    present = at(document, keys)
    if present is not None:
        if present == table:
            return Edited(before, notes=(f"{path} has {rendered_keys(keys)} already, as it is to be",))
        raise Refusal(
            "name-taken",
            f"{path} has {rendered_keys(keys)} already, and it is not what mgpu install writes",
            "remove it, then run this again; nothing was changed",
        )
    tables = {**(beside or {}), keys[-1]: table}
    lines = "".join(rendered([*keys[:-1], name], each) for name, each in tables.items())
    if old is not None and block.inner_of(text) == lines:
        return Edited(text)
    after = block.added(before, lines, uninstall=uninstall)
    _check(after, path, document, keys[:-1], tables)
    edited = f"the lines of mgpu install in {path} were changed by hand and are written anew"
    return Edited(after, notes=(edited,) if old is not None and old.edited else ())


def without(text: str, path: Path) -> Edited | NotHere:
    """text without the block."""
    old = block.removed(text)
    if old is None:
        return NotHere()
    edited = f"the lines of mgpu install in {path} had been changed by hand; they are gone too"
    return Edited(old.text, notes=(edited,) if old.edited else ())


def _check(after: str, path: Path, document: Toml, above: Sequence[str], tables: Mapping[str, Any]) -> None:
    """Nothing but `tables` has been added: an inline table or a dotted key above would not take them."""
    try:
        result = tomllib.loads(after)
    except tomllib.TOMLDecodeError:
        result = None
    parent: Any = document
    for key in above:
        parent = parent.setdefault(key, {}) if isinstance(parent, dict) else None
    if isinstance(parent, dict):
        parent.update({name: dict(table) for name, table in tables.items()})
    if result != document:
        raise Refusal(
            "no-place",
            f"{path} writes {quoted(rendered_keys(above))} in a form that no table can be added to",
            "write it with [table] headers, then run this again; nothing was changed",
        )


def rendered_keys(keys: Sequence[str]) -> str:
    return ".".join(key if key and set(key) <= _BARE else rendered_value(key) for key in keys)


def rendered_value(value: Any) -> str:
    """TOML of a value: text, number, truth, or a list of these."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case str():
            return '"' + "".join(_escaped(c) for c in value) + '"'
        case [_, _, *_]:
            return "[\n" + "".join(f"    {rendered_value(item)},\n" for item in value) + "]"
        case list():
            return "[" + ", ".join(rendered_value(item) for item in value) + "]"
    raise TypeError(f"no TOML of {type(value).__name__} here")


def _escaped(c: str) -> str:
    if c in '"\\':
        return f"\\{c}"
    return c if c.isprintable() else f"\\U{ord(c):08x}"


def rendered(keys: Sequence[str], table: Mapping[str, Any]) -> str:
    """Lines of one table and of the tables in it."""
    lines = [f"[{rendered_keys(keys)}]\n"]
    lines += [
        f"{rendered_keys([name])} = {rendered_value(value)}\n"
        for name, value in table.items()
        if not isinstance(value, dict)
    ]
    lines += [rendered([*keys, name], value) for name, value in table.items() if isinstance(value, dict)]
    return "".join(lines)
