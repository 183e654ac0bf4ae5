"""What the node process says to its operator: one line when something becomes so, none while it stays."""

from __future__ import annotations

import sys
from collections.abc import Callable

TOPICS_MAX = 1024


def _to_stderr(line: str) -> None:
    print(f"mgpu-node: {line}", file=sys.stderr, flush=True)


class Told:
    """topic: what a line is about; one state at a time is known of each."""

    def __init__(self, write: Callable[[str], None] = _to_stderr) -> None:
        self._write = write
        self._lines: dict[str, str] = {}

    def say(self, topic: str, line: str) -> None:
        """Unless that is the last that was said about it."""
        if self._lines.get(topic) == line:
            return
        if len(self._lines) >= TOPICS_MAX:
            self._lines.clear()
        self._lines[topic] = line
        self._write(line)

    def over(self, topic: str, line: str) -> None:
        """What was said about it holds no more; nothing is said where nothing was."""
        if self._lines.pop(topic, None) is not None:
            self._write(line)

    def lines(self) -> list[str]:
        """What holds now."""
        return list(self._lines.values())
