"""What the demo prints: headings, commands with output, tables, and promised against seen."""

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from mgpu_cli import table

PIPE_COLUMNS = 160


class Report:
    """`faults` counts what was not as promised, `checks` all that was promised."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_COLUMNS)
        self._reason: str | None = None
        self.faults = 0
        self.checks = 0

    def heading(self, text: str) -> None:
        self._console.print()
        self._console.print(Text(f"── {text}", style="bold"))

    def command(self, command: str, output: str = "") -> None:
        self._console.print(Text(f"$ {command}", style="cyan"), soft_wrap=True)
        if output:
            self._console.print(Text(output.rstrip("\n")), soft_wrap=True)
        self._console.print()

    def say(self, text: str) -> None:
        self._console.print(Text(text))

    def table(self, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        self._console.print(Text(table.text([headings, *rows])), soft_wrap=True)

    def check(self, promise: str, promised: object, seen: object) -> None:
        """Hold what was seen against what was promised. promised True: the promise is a whole sentence."""
        self.checks += 1
        if seen != promised:
            self.faults += 1
            detail = "" if promised is True else f": promised {promised}, seen {seen}"
            self._console.print(Text(f"  FAIL {promise}{detail}", style="bold red"))
        else:
            detail = "" if promised is True else f": {seen}"
            self._console.print(Text(f"  ok   {promise}{detail}", style="green"))

    def stopped(self, reason: str) -> None:
        """The demo did not come to its end; the reason is no promise that was broken."""
        self._reason = reason

    def conclude(self, seconds: float) -> int:
        """Print the outcome; the demo's exit status."""
        self._console.print()
        if self._reason is not None:
            self._console.print(Text(f"Stopped after {seconds:.0f} s: {self._reason}", style="bold red"))
        if self.faults:
            broken = f"{self.faults} of {self.checks} promises broken in {seconds:.0f} s."
            self._console.print(Text(broken, style="bold red"))
        elif self._reason is None:
            held = f"All {self.checks} promises held. It took {seconds:.0f} s."
            self._console.print(Text(held, style="bold green"))
        return 1 if self.faults or self._reason is not None else 0
