"""A file that is ours from the first line to the last."""

import hashlib
import re
from pathlib import Path

from install.change import Target, backup_of
from install.edit import Edited, NotHere
from oci_specs.refusal import Refusal

_DIGEST_CHARS = 12
_HEAD = re.compile(rf"# Written by mgpu install ([0-9a-f]{{{_DIGEST_CHARS}}}); [^\n]*\n")


def headed(body: str, uninstall: str) -> str:
    """body with a first line that says whose it is and whether it was changed."""
    digest = hashlib.sha256(body.encode()).hexdigest()[:_DIGEST_CHARS]
    return f"# Written by mgpu install {digest}; {uninstall} takes it away\n{body}"


def _edited(text: str) -> bool:
    head = _HEAD.match(text)
    return head is not None and headed(text[head.end() :], "")[: head.end(1)] != text[: head.end(1)]


def target(path: Path, body: str, uninstall: str, *, mode: int = 0o644) -> Target:
    """A file with `body`. Refusal where there is another one of that name, or one of ours that was edited."""
    wanted = headed(body, uninstall)

    def add(text: str | None) -> Edited:
        if text is None or (_HEAD.match(text) and not _edited(text)):
            return Edited(wanted)
        if text == wanted:
            return Edited(text)
        what = "was changed by hand" if _HEAD.match(text) else "was not written by mgpu install"
        raise Refusal(
            "name-taken",
            f"{path} is there already and {what}",
            "move it away, then run this again; nothing was changed",
        )

    def remove(text: str) -> Edited | NotHere:
        if not _HEAD.match(text):
            return NotHere()
        if _edited(text):
            kept = f"{path} had been changed by hand: it is kept as {backup_of(path)}"
            return Edited(None, (kept,), keep=True)
        return Edited(None)

    return Target(path=path, add=add, remove=remove, mode=mode)
