"""What NVIDIA's headers say of chips and channel classes: rm/facts/chips.tsv and userd.tsv."""

import csv
import re
from dataclasses import dataclass

from tests.support.places import REPOSITORY

FACTS = REPOSITORY / "native_sched/nvidia/rm" / "facts"
# Simulated cards, one of each kind that the bench has rows for.
KINDS = {
    "v100-16": "V100",
    "a100-40": "A100",
    "h100": "H100",
    "rtx-4090": "RTX 4090",
    "rtx-5090": "RTX 5090",
    "b200": "B200",
}


@dataclass(frozen=True, kw_only=True)
class Chip:
    """status: from a runlist's base, or of the whole card; has_get: GP_GET is written back."""

    name: str
    architecture: int
    implementation: int
    whole_card: bool
    status: int
    stride: int
    words: int
    loads: int
    has_get: bool
    source: str

    @property
    def header(self) -> str:
        [found] = re.findall(r"hw_\w+\.h", self.source)
        return str(found)


def _rows(name: str) -> list[dict[str, str]]:
    with (FACTS / name).open() as facts:
        return list(csv.DictReader(facts, delimiter="\t"))


def chips() -> list[Chip]:
    return [
        Chip(
            name=row["chip"],
            architecture=int(row["architecture"], 0),
            implementation=int(row["implementation"], 0),
            whole_card={"card": True, "runlist": False}[row["of"]],
            status=int(row["status"], 0),
            stride=int(row["stride"]),
            words=int(row["words"]),
            loads=int(row["loads"]),
            has_get={"yes": True, "no": False}[row["gp_get"]],
            source=row["source"],
        )
        for row in _rows("chips.tsv")
    ]


def chip(architecture: int, implementation: int) -> Chip:
    [found] = [
        one for one in chips() if (one.architecture, one.implementation) == (architecture, implementation)
    ]
    return found


def named(name: str) -> Chip:
    [found] = [one for one in chips() if one.name == name]
    return found


def userd() -> dict[int, tuple[int | None, int]]:
    """Of each channel class, where GP_GET (None: it has none) and GP_PUT are."""
    return {
        int(row["class"], 0): (
            None if row["gp_get"] == "-" else int(row["gp_get"], 0),
            int(row["gp_put"], 0),
        )
        for row in _rows("userd.tsv")
    }
