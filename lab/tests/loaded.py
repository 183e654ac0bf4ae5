"""The driver that is loaded, and what the project's facts (rm/facts) say of its structures."""

import functools
from pathlib import Path

from tests.support.rm_numbers import FACTS

_UNKNOWN_END = "-"


@functools.cache
def version() -> str:
    return Path("/sys/module/nvidia/version").read_text().strip()


def chip() -> str:
    """Which one the card plays."""
    words = dict(word.partition("=")[::2] for word in Path("/proc/cmdline").read_text().split())
    return words["lab.chip"]


@functools.cache
def _told(kind: str) -> dict[str, list[str]]:
    """The rows of a table that hold for that driver, by their symbol."""
    releases = (FACTS / "versions.tsv").read_text().splitlines()
    places = {line.split("\t")[0]: at for at, line in enumerate(releases)}
    ours, found = places[version()], {}
    for line in (FACTS / f"{kind}.tsv").read_text().splitlines()[1:]:
        *row, since, last = line.split("\t")
        if places[since] <= ours and (last == _UNKNOWN_END or ours <= places[last]):
            found[row[0]] = row
    return found


def params_bytes(symbol: str) -> int:
    """Of a class's, a control's or of a command of nvidia-uvm."""
    return int(next(told[symbol] for told in map(_told, ("class", "control", "uvm")) if symbol in told)[3])
