"""A marked run of lines at the end of a text that is otherwise left as it is, byte for byte.

TOML takes tables in any order, so what mgpu adds to a configuration can stand apart from what others wrote
there, and can be taken away without a trace.
"""

import hashlib
import re
from dataclasses import dataclass

_BEGIN = "# >>> mgpu install"
_END = "# <<< mgpu install"
# Said in the first line when the text before did not end with a newline, so that it can be as it was again.
_NEWLINE_ADDED = ", newline added before"
_DIGEST_CHARS = 12
_BLOCK = re.compile(
    rf"(?:(?<=\n)\n)?^{_BEGIN} (?P<digest>[0-9a-f]{{{_DIGEST_CHARS}}})(?P<added>{_NEWLINE_ADDED})?[^\n]*\n"
    rf"(?P<inner>.*?)^{_END}[^\n]*\n?",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Removed:
    """A text without its block. edited: the lines in the block were not those that were written."""

    text: str
    edited: bool


def _digest(inner: str) -> str:
    return hashlib.sha256(inner.encode()).hexdigest()[:_DIGEST_CHARS]


def added(text: str, inner: str, *, uninstall: str) -> str:
    """text with a block of the lines `inner` at its end. `uninstall` is the command that takes it away.

    text has no block yet, and inner ends with a newline.
    """
    joined = bool(text) and not text.endswith("\n")
    mark = _NEWLINE_ADDED if joined else ""
    head = f"{_BEGIN} {_digest(inner)}{mark}; {uninstall} takes these lines away\n"
    gap = "\n" * (bool(text) + joined)
    return f"{text}{gap}{head}{inner}{_END}\n"


def inner_of(text: str) -> str | None:
    """The lines in the block; None without one."""
    found = _BLOCK.search(text)
    return found["inner"] if found else None


def removed(text: str) -> Removed | None:
    """text as it was before `added`; None if there is no block in it."""
    found = _BLOCK.search(text)
    if found is None:
        return None
    before, after = text[: found.start()], text[found.end() :]
    if found["added"]:
        before = before.removesuffix("\n")
        # What was written below it since starts on a line of its own.
        after = f"\n{after}" if after else ""
    return Removed(before + after, _digest(found["inner"]) != found["digest"])
