"""A program's lines for its operator: one when a condition becomes so, none while it stays."""

import sys
from collections.abc import Callable

TOPICS_MAX = 1024


def to_stderr(program: str) -> Callable[[str], None]:
    """A writer of lines that begin with the program's name."""
    return lambda line: print(f"{program}: {line}", file=sys.stderr, flush=True)


class Conditions:
    """topic: what a line is about; one line at a time holds of each."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._lines: dict[str, str] = {}

    def set(self, topic: str, line: str) -> None:
        """Writes the line, unless it holds already."""
        if self._lines.get(topic) == line:
            return
        if len(self._lines) >= TOPICS_MAX:
            self._lines.clear()
        self._lines[topic] = line
        self._write(line)

    def clear(self, topic: str, line: str) -> None:
        """The topic's line holds no more. Writes `line`, unless none held."""
        if self._lines.pop(topic, None) is not None:
            self._write(line)

    def lines(self) -> list[str]:
        """The lines that hold now."""
        return list(self._lines.values())
