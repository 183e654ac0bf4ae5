"""Calls of a driver capability: what gVisor's nvproxy lists, and what interface.def says."""

from tests.support import rm_interface
from tests.support.rm_interface import Item
from tests.support.tsv import read

NVPROXY = rm_interface.SOURCE.parent / "facts" / "nvproxy.tsv"
INTERFACE = rm_interface.read()
VERSIONS = ["535.261.03", "550.163.01", "570.211.01", "580.95.05", "610.43.03"]
KINDS = {"class": INTERFACE.classes, "control": INTERFACE.controls}


def branch(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def listed(capability: str, kind: str, version: str) -> dict[int, str]:
    """What nvproxy lets containers with it call on that driver: numbers, with their names."""
    at = tuple(map(int, version.split(".")))
    return {
        int(row["number"], 16): row["symbol"]
        for row in read(NVPROXY)
        if row["kind"] == kind
        and capability in row["capabilities"].split(",")
        and tuple(map(int, row["since"].split("."))) <= at
    }


def rows(capability: str, version: str) -> list[Item]:
    return [
        item
        for item in (*INTERFACE.classes, *INTERFACE.controls)
        if capability in item.capability and INTERFACE.lives_at(item.name, branch(version))
    ]


def served_to_all(kind: str, version: str) -> set[int]:
    return {
        item.number
        for item in KINDS[kind]
        if not item.capability
        and not item.whole
        and item.disposition != "REFUSED"
        and INTERFACE.lives_at(item.name, branch(version))
    }
