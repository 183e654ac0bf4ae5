"""A TOML file of our own among others that an engine reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from install import toml_text
from install.change import Target
from install.edit import Edited, NotHere


def target(path: Path, keys: Sequence[str], table: Mapping[str, Any], uninstall: str) -> Target:
    """One table. The file is removed with it unless it holds something else."""

    def add(text: str | None) -> Edited:
        return toml_text.with_table(text or "", path, keys, table, uninstall)

    def remove(text: str) -> Edited | NotHere:
        edited = toml_text.without(text, path)
        return Edited(None, edited.notes) if isinstance(edited, Edited) and not edited.text else edited

    return Target(path=path, add=add, remove=remove)
