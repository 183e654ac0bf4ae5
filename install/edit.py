"""What an edit of a text gives."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Edited:
    """The new text, and what the operator should know. A text of None: there is to be no such file.

    keep: the old text holds other work than mgpu's, and must not be lost with the file.
    """

    text: str | None
    notes: tuple[str, ...] = ()
    keep: bool = False


@dataclass(frozen=True)
class NotHere:
    """There is nothing of ours in the text."""
