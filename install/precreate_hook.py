"""A podman hook of the stage precreate: a JSON file of our own (oci-hooks(5)).

In a folder of our own too, which podman's configuration names: CRI-O reads /usr/share/containers/oci/hooks.d
as well, has no such stage, and does not start with a hook of one that it does not know.
"""

import json
from pathlib import Path
from typing import Any

from install.change import Target, backup_of
from install.edit import Edited, NotHere
from install.parts import RUNTIME
from oci_specs.refusal import Refusal

STAGE = "precreate"
# Over the 10 s for which mgpu-runtime waits for mgpud.
TIMEOUT_S = 30


def text(runtime: str) -> str:
    """The file's text; it matches every container, since one that names no GPU may have been given one."""
    return json.dumps(_document(runtime), indent=2) + "\n"


def _document(runtime: str) -> dict[str, Any]:
    return {
        "version": "1.0.0",
        "hook": {"path": runtime, "args": [RUNTIME, STAGE], "timeout": TIMEOUT_S},
        "when": {"always": True},
        "stages": [STAGE],
    }


def is_ours(content: str) -> bool:
    """Whether this is what we write, for this installation of mgpu or another."""
    path = _program(content)
    return Path(path).name == RUNTIME and content == text(path)


def _program(content: str) -> str:
    try:
        path = json.loads(content)["hook"]["path"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return path if isinstance(path, str) else ""


def target(path: Path, runtime: str, *, wanted: bool) -> Target:
    """The file at path, which is to be there or not. Refusal where something else is there."""

    def add(content: str | None) -> Edited:
        if content is not None and not is_ours(content):
            raise Refusal(
                "name-taken",
                f"{path} is there already and is not what mgpu install writes",
                "move it away, then run this again; nothing was changed",
            )
        return Edited(text(runtime) if wanted else None)

    def remove(content: str) -> Edited | NotHere:
        if is_ours(content):
            return Edited(None)
        if Path(_program(content)).name != RUNTIME:
            return NotHere()
        kept = f"{path} had been changed by hand: it is kept as {backup_of(path)}"
        return Edited(None, (kept,), keep=True)

    return Target(path=path, add=add, remove=remove)
