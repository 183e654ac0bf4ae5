"""Symbolic links of ours."""

import os
from pathlib import Path

from install.change import Target
from install.edit import Edited, NotHere
from oci_specs.refusal import Refusal


def link(path: Path, to: str) -> Target:
    """A link at path to one of our programs. One that leads to another program of that name is ours too."""

    def is_ours(text: str) -> bool:
        return os.path.basename(text) == os.path.basename(to)

    def add(text: str | None) -> Edited:
        if text is not None and not is_ours(text):
            raise Refusal(
                "name-taken",
                f"{path} leads to {text}",
                "remove it, then run this again; nothing was changed",
            )
        return Edited(to)

    def remove(text: str) -> Edited | NotHere:
        return Edited(None) if is_ours(text) else NotHere()

    return Target(path=path, add=add, remove=remove, link=True)
