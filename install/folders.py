"""Folders that `mgpu install` made, written down so that `mgpu uninstall` removes those and no others."""

from contextlib import suppress
from pathlib import Path

from install import files
from install.change import Change, Plan


def place(change: Change) -> Path:
    """Where it is written."""
    return change.path if change.link else files.final(change.path)


def missing(folder: Path) -> list[Path]:
    """It and those above it that are not there, the uppermost first."""
    return [each for each in (*reversed(folder.parents), folder) if not each.exists()]


def noted(plan: Plan, record: Path) -> Plan:
    """What the record is to say once the plan has been carried out."""
    fresh = {
        str(folder)
        for change in plan.changes
        if change.after is not None
        for folder in missing(place(change).parent)
        # Goes with the record.
        if folder != record.parent
    }
    if not fresh:
        return Plan()
    known = files.read_text(record)
    lines = sorted({*_lines(known), *fresh})
    before = None if known is None else known.encode()
    return Plan((Change(path=record, before=before, after=_text(lines).encode()),))


def removed(record: Path, *, last: bool) -> Plan:
    """Those that are empty go; what the record is to say then. last: it goes too, for nothing of mgpu's is
    left that would.
    """
    known = files.read_text(record)
    if known is None:
        return Plan()
    # What is inside another comes before it.
    for folder in sorted(_lines(known), reverse=True):
        with suppress(OSError):
            Path(folder).rmdir()
    left = [] if last else [folder for folder in _lines(known) if Path(folder).exists()]
    after = _text(left).encode() if left else None
    return Plan((Change(path=record, before=known.encode(), after=after),))


def _lines(text: str | None) -> list[str]:
    return (text or "").splitlines()


def _text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
