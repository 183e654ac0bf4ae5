"""A TOML file of our own among others that an engine reads."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from install import block, files, toml_text
from install.change import Target
from install.edit import Edited, NotHere


def target(
    path: Path,
    keys: Sequence[str],
    table: Callable[[], Mapping[str, Any]],
    uninstall: str,
    *,
    backups: Path | None = None,
) -> Target:
    """One table. The file is removed with it unless it holds something else.

    table is asked when it is to be written: uninstalling must not fail over the text of other files.
    """

    def add(text: str | None) -> Edited:
        return toml_text.with_table(text or "", path, keys, table(), uninstall)

    def remove(text: str) -> Edited | NotHere:
        edited = toml_text.without(text, path)
        return Edited(None, edited.notes) if isinstance(edited, Edited) and not edited.text else edited

    return Target(path=path, add=add, remove=remove, backups=backups)


def others(path: Path, keys: Sequence[str]) -> Any:
    """The value at keys in one of an engine's files, without mgpu's own part; None if there is none."""
    text = files.read_text(path) or ""
    removed = block.removed(text)
    return toml_text.at(toml_text.parsed(text if removed is None else removed.text, path), keys)
