"""interface.def: its rows as text says them, for comparing with facts."""

import functools
import re
from dataclasses import dataclass
from pathlib import Path

from tools.abi.problem import Problem
from tools.abi.release import order
from tools.abi.tables import REPOSITORY

RM = REPOSITORY / "native_sched/nvidia/rm"
SOURCE = RM / "interface.def"
HEADERS = tuple(
    RM / f"{name}.h" for name in ("rm_abi", "export_abi", "peers_abi", "uvm_abi", "arbiter_abi", "perfmon")
)
# Macro: the kind of fact that its rows are about.
KINDS = {
    "STATUS": "status",
    "ESCAPE": "escape",
    "UVM": "uvm",
    "CLASS": "class",
    "CONTROL": "control",
}
_ROW = re.compile(r"^(BRANCH|BYTES|STATUS|ESCAPE|UVM|CLASS|CONTROL)\((.*)\)$", re.M)
_ARGUMENT = re.compile(r"(?:[^,()]|\((?:[^()]|\([^()]*\))*\))+")
DISPOSITIONS = frozenset({"PASSED", "MEDIATED", "ANSWERED", "REFUSED"})
CHOICE = "PASSED, MEDIATED, ANSWERED or REFUSED"
DISPOSED = frozenset({"ESCAPE", "UVM", "CONTROL"})
CALLERS = "RM_BYTES_CALLERS"
# Columns of rows for containers with a driver capability.
CAPABILITIES = {"VIDEO(": "video", "GRAPHICS(": "graphics", "MEDIA(": "video or graphics"}
# A column of an escape with offsets, and what each is of.
PLACES = {"PARAMS_AT": ("parameters", "their size"), "POINTER_AT": ("pointer",)}


@dataclass(frozen=True)
class Row:
    """size: as the row says it; None where it has none. places: of fields, by what they are. whole: for
    containers that hold their cards alone. capability: for those with that driver capability. peers: it makes
    cards peers, of which a container has to have two.
    """

    macro: str
    symbol: str
    number: int
    size: str | None
    status_at: str | None
    disposition: str | None
    places: tuple[tuple[str, int], ...]
    since: tuple[int, int] | None
    until: tuple[int, int] | None
    whole: bool = False
    capability: str = ""
    peers: bool = False

    @property
    def kind(self) -> str:
        return KINDS[self.macro]

    @functools.cached_property
    def base(self) -> str:
        """NVIDIA's symbol: a number that changed has two rows, and the later one's name ends in its
        branch."""
        return re.sub(r"_V\d{3}$", "", self.symbol)

    @property
    def is_refused(self) -> bool:
        """Of an escape, ANSWERED says that the mediator answers "not here"."""
        return self.disposition == "REFUSED" or (self.macro == "ESCAPE" and self.disposition == "ANSWERED")

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
        """None: not checked, or any number of elements."""
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


def _places(said: list[str]) -> tuple[tuple[str, int], ...]:
    return tuple(
        (what, int(offset, 0))
        for column, fields in PLACES.items()
        for argument in said
        if argument.startswith(f"{column}(")
        for what, offset in zip(fields, argument[len(column) + 1 : -1].split(","), strict=True)
    )


def _row(macro: str, said: list[str]) -> Row:
    plain = [argument for argument in said if not argument.startswith(("SINCE(", "UNTIL("))]
    words = (argument.partition("(")[0] for argument in plain[2:])
    disposition = next((word for word in words if word in DISPOSITIONS), None)
    if macro in DISPOSED and disposition is None:
        raise Problem(f"interface.def: {plain[0]} has no disposition: {CHOICE}")
    if macro == "CLASS" and len(plain) < 4:
        raise Problem(f"interface.def: {plain[0]} has no kind: OTHER, if nothing")
    return Row(
        macro,
        plain[0],
        int(plain[1], 0),
        None if macro == "STATUS" or plain[2] == CALLERS else plain[2],
        plain[3] if macro == "ESCAPE" else None,
        disposition,
        _places(said),
        _point("SINCE", said),
        _point("UNTIL", said),
        any(argument.startswith("WHOLE(") for argument in said),
        next(
            (named for word, named in CAPABILITIES.items() if any(each.startswith(word) for each in said)),
            "",
        ),
        macro == "CLASS" and plain[3] == "P2P",
    )


def read(path: Path = SOURCE) -> Interface:
    branches: dict[int, int] = {}
    sizes: dict[str, list[tuple[tuple[int, int], int]]] = {}
    found = []
    for macro, inner in _ROW.findall(path.read_text()):
        said = [argument.strip() for argument in _ARGUMENT.findall(inner)]
        try:
            if macro == "BRANCH":
                branches[int(said[0])] = int(said[1])
            elif macro == "BYTES":
                sizes.setdefault(said[0], []).append(((int(said[1]), int(said[2])), int(said[3], 0)))
            else:
                found.append(_row(macro, said))
        except (IndexError, ValueError):
            raise Problem(f"interface.def: {macro}({inner}) is no such row") from None
    return Interface(branches, sizes, tuple(found))
