"""What no figure of `make count` may be above: ceilings.tsv, by name.

A ceiling only falls. That of a product's code lines is raised by who adds a feature, in the same commit.
"""

import re
from collections.abc import Mapping
from pathlib import Path

TABLE = Path(__file__).with_name("ceilings.tsv")
MAY_RISE = "code lines: "
_CHANGE = re.compile(r"^([-+])(\D[^\t]*)\t(\d+)$", re.MULTILINE)


def ceilings() -> dict[str, int]:
    rows = (line.split("\t") for line in TABLE.read_text().splitlines()[1:])
    return {name: int(most) for name, most in rows}


def over(numbers: Mapping[str, int], most: Mapping[str, int]) -> list[str]:
    """A line for each figure that is above its ceiling, or has none."""
    return [
        f"{name}: {number}, at most {most.get(name, 'unknown')}"
        for name, number in numbers.items()
        if name not in most or number > most[name]
    ]


def raised(patches: str) -> list[str]:
    """The ceilings that a history of patches of the table raises, the newest first."""
    found: list[str] = []
    for patch in re.split(r"^diff ", patches, flags=re.MULTILINE):
        changes = _CHANGE.findall(patch)
        before = {name: int(number) for sign, name, number in changes if sign == "-"}
        found += [
            f"{name}: {before[name]} to {number}"
            for sign, name, number in changes
            if sign == "+" and not name.startswith(MAY_RISE) and int(number) > before.get(name, int(number))
        ]
    return found
