"""The one way mgpu says no: a code for programs, one line for people, and what to do about it.

Imports nothing, because it is on the path of every container start.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# A value longer than this says nothing more about what is wrong with it and hides the rest of the line.
SHOWN_MAX_CHARS = 120


def printable(text: str) -> str:
    """text on one line: control characters, line separators and lone surrogates are backslash-escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def quoted(value: object) -> str:
    """value as the user wrote it, in double quotes, on one line, cut at SHOWN_MAX_CHARS characters."""
    text = str(value)
    if len(text) > SHOWN_MAX_CHARS:
        text = text[:SHOWN_MAX_CHARS] + "…"
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{printable(text)}"'


class Refusal(Exception):
    """mgpu does not do what was asked.

    code is kebab-case and stable; message is what and why; hint is what to do. Neither ends with a full stop,
    and `line()` joins them, so that docker, ctr, kubectl and our own command show the same words.
    """

    exit_status = 1  # of a command of ours

    def __init__(self, code: str, message: str, hint: str) -> None:
        super().__init__(code, message, hint)
        self.code = code
        self.message = printable(message)
        self.hint = printable(hint)

    def line(self) -> str:
        return f"mgpu: {self.message}; {self.hint}"

    def __str__(self) -> str:
        return self.line()

    def to_error(self) -> dict[str, str]:
        """The `error` member of a control reply."""
        return {"code": self.code, "message": self.message, "hint": self.hint}

    @classmethod
    def from_error(cls, error: Mapping[str, object]) -> Refusal:
        """The refusal in a control reply's `error` member; missing members are empty."""
        return cls(str(error.get("code", "")), str(error.get("message", "")), str(error.get("hint", "")))
