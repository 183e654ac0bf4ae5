"""native_sched/rm/interface.def: its rows as text says them, for comparing with facts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tools.abi.release import order
from tools.abi.tables import REPOSITORY

SOURCE = REPOSITORY / "native_sched" / "rm" / "interface.def"
HEADERS = tuple(
    REPOSITORY / "native_sched" / name
    for name in (
        "boundary/rm_abi.h",
        "boundary/rm_export_abi.h",
        "boundary/uvm_abi.h",
        "driver/nvidia_abi.h",
        "rm/perfmon.h",
    )
)
# Macro: the kind of fact that its rows are about.
KINDS = {
    "STATUS": "status",
    "ESCAPE": "escape",
    "UVM": "uvm",
    "CLASS": "class",
    "CONTROL": "control",
    "PASSED": "control",
    "LISTS": "control",
}
_ROW = re.compile(r"^(BRANCH|BYTES|STATUS|ESCAPE|UVM|CLASS|CONTROL|PASSED|LISTS)\((.*)\)$", re.M)
_ARGUMENT = re.compile(r"(?:[^,()]|\([^()]*\))+")
DISPOSITIONS = frozenset({"PASSED", "MEDIATED", "ANSWERED", "REFUSED"})


@dataclass(frozen=True)
class Row:
    """size: as the row says it; None where the macro has none."""

    macro: str
    symbol: str
    number: int
    size: str | None
    status_at: str | None
    disposition: str | None
    since: tuple[int, int] | None
    until: tuple[int, int] | None

    @property
    def kind(self) -> str:
        return KINDS[self.macro]

    @property
    def base(self) -> str:
        """NVIDIA's symbol: a number that changed has two rows, and the later one's name ends in its branch."""
        return re.sub(r"_V\d{3}$", "", self.symbol)

    def applies(self, version: str) -> bool:
        at = order(version)[:2]
        return (self.since is None or self.since <= at) and (self.until is None or at < self.until)


@dataclass(frozen=True)
class Interface:
    branches: dict[int, int]
    sizes: dict[str, list[tuple[tuple[int, int], int]]]
    rows: tuple[Row, ...]

    def serves(self, version: str) -> bool:
        major, minor = order(version)[:2]
        return minor >= self.branches.get(major, 10**9)

    def size(self, text: str, version: str) -> int | None:
        """None: nobody looks, or any number of elements."""
        if text.isdigit() or text.startswith("0x"):
            return int(text, 0)
        changes = self.sizes.get(text.removeprefix("RM_BYTES_"), [])
        known = [size for since, size in changes if since <= order(version)[:2]]
        return known[-1] if known else None


def _point(macro: str, arguments: list[str]) -> tuple[int, int] | None:
    for argument in arguments:
        if found := re.fullmatch(rf"{macro}\((\d+), (\d+)\)", argument):
            return int(found[1]), int(found[2])
    return None


def read(path: Path = SOURCE) -> Interface:
    branches: dict[int, int] = {}
    sizes: dict[str, list[tuple[tuple[int, int], int]]] = {}
    found = []
    for macro, inner in _ROW.findall(path.read_text()):
        said = [argument.strip() for argument in _ARGUMENT.findall(inner)]
        if macro == "BRANCH":
            branches[int(said[0])] = int(said[1])
        elif macro == "BYTES":
            sizes.setdefault(said[0], []).append(((int(said[1]), int(said[2])), int(said[3], 0)))
        else:
            plain = [argument for argument in said if not argument.startswith(("SINCE(", "UNTIL("))]
            found.append(
                Row(
                    macro,
                    plain[0],
                    int(plain[1], 0),
                    None if macro in ("STATUS", "PASSED") else plain[2],
                    plain[3] if macro == "ESCAPE" else None,
                    next((word for word in plain[2:] if word in DISPOSITIONS), None),
                    _point("SINCE", said),
                    _point("UNTIL", said),
                )
            )
    return Interface(branches, sizes, tuple(found))
