"""What a check answers, and what a check is."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mgpu_cli.doctor.host import Host


class Level(IntEnum):
    """note: worth knowing, nothing to do. warn: works, not as it should. fail: does not work."""

    OK = 0
    NOTE = 1
    WARN = 2
    FAIL = 3


@dataclass(frozen=True)
class Finding:
    """what: one line; why: its meaning or empty; line: the command to type or empty."""

    id: str
    level: Level
    what: str
    why: str = ""
    line: str = ""

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "level": self.level.name.lower()}


Check = Callable[["Host"], Iterable[Finding]]


@dataclass(frozen=True)
class Group:
    """Checks that are made one after the other; groups are made at once."""

    name: str
    checks: tuple[Check, ...]


def ok(id: str, what: str, why: str = "") -> Finding:
    return Finding(id, Level.OK, what, why)


def note(id: str, what: str, why: str = "", line: str = "") -> Finding:
    return Finding(id, Level.NOTE, what, why, line)


def warn(id: str, what: str, why: str = "", line: str = "") -> Finding:
    return Finding(id, Level.WARN, what, why, line)


def fail(id: str, what: str, why: str = "", line: str = "") -> Finding:
    return Finding(id, Level.FAIL, what, why, line)
