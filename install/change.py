"""What is to become of files: as data, so that it can be shown before it is done."""

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from install.edit import Edited, NotHere

BACKUP_SUFFIX = ".mgpu-backup"


@dataclass(frozen=True, kw_only=True)
class Change:
    """One file's bytes before and after; None: no such file. link: `after` is where a symbolic link leads.

    mode: of a file that is new. like: a file whose mode and owner it takes instead, for it holds the same.
    aside: a folder where it is written first, where the engine reads everything that lies beside the file.
    """

    path: Path
    before: bytes | None
    after: bytes | None
    mode: int = 0o644
    link: bool = False
    like: Path | None = None
    aside: Path | None = None


@dataclass(frozen=True)
class Plan:
    """Ordered changes, notes for the operator, and files that are already up to date."""

    changes: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()
    unchanged: tuple[Path, ...] = ()

    def __add__(self, other: "Plan") -> "Plan":
        return Plan(self.changes + other.changes, self.notes + other.notes, self.unchanged + other.unchanged)

    def diff(self) -> str:
        """Unified diff of everything but backups, which are copies of what the diff shows."""
        return "".join(_diff(change) for change in self.changes if change.path.suffix != BACKUP_SUFFIX)


def _always(text: str) -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class Target:
    """One file that an engine reads, and how it is edited. None as text: there is no such file.

    marked: what `remove` finds bears mgpu's mark, and was not written by others before. may_go:
    Refusal when the engine would not work without what is to be removed from the text. backups: a folder for
    the copy of the unchanged file and for a new one until it is whole, where the engine reads everything that
    lies beside the file.
    """

    path: Path
    add: Callable[[str | None], Edited]
    remove: Callable[[str], Edited | NotHere]
    mode: int = 0o644
    link: bool = False
    marked: bool = True
    may_go: Callable[[str], None] = _always
    backups: Path | None = None

    @property
    def backup(self) -> Path:
        beside = backup_of(self.path)
        return beside if self.backups is None else self.backups / beside.name


def backup_of(path: Path) -> Path:
    return path.with_name(path.name + BACKUP_SUFFIX)


def _diff(change: Change) -> str:
    before, after = _lines(change.before), _lines(change.after)
    from_file = "/dev/null" if change.before is None else str(change.path)
    to_file = "/dev/null" if change.after is None else str(change.path)
    if change.link:
        to_file += " (symbolic link)"
    shown = []
    for line in difflib.unified_diff(before, after, from_file, to_file):
        shown.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    return "".join(shown)


def _lines(content: bytes | None) -> list[str]:
    if content is None:
        return []
    # Not splitlines: it also splits at form feeds and other characters that are in the middle of a line.
    lines = content.decode(errors="backslashreplace").split("\n")
    return [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
