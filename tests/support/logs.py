"""Logs of the programs that tests start: a failing test shows what each of them wrote since it began."""

from pathlib import Path

SHOWN_LINES = 60


class Logs:
    """The log files of running programs, and how long each was when the present test began."""

    def __init__(self) -> None:
        self._seen_bytes: dict[Path, int] = {}

    def add(self, log: Path) -> None:
        """Show `log` with failing tests until it is removed. The file need not exist yet."""
        self._seen_bytes[log] = 0

    def remove(self, log: Path) -> None:
        self._seen_bytes.pop(log, None)

    def mark(self) -> None:
        """A test begins: what is there now is not shown with it."""
        for log in self._seen_bytes:
            self._seen_bytes[log] = log.stat().st_size if log.exists() else 0

    def since_mark(self) -> list[tuple[str, str]]:
        """(file name with its folder's, last SHOWN_LINES lines) of each log that has grown."""
        shown = []
        for log, seen_bytes in self._seen_bytes.items():
            if not log.exists():
                continue
            with log.open("rb") as content:
                content.seek(seen_bytes)
                lines = content.read().decode(errors="replace").splitlines()
            if lines:
                shown.append((f"{log.parent.name}/{log.name}", "\n".join(lines[-SHOWN_LINES:])))
        return shown


LOGS = Logs()
