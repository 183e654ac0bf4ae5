"""Of how many per cent of its lines the tests reach at least in each room: floors.tsv. A floor only rises."""

import re
from collections.abc import Mapping
from pathlib import Path

from tools.count.ceilings import raised

TABLE = Path(__file__).with_name("floors.tsv")


def floors() -> dict[str, int]:
    rows = (line.split("\t") for line in TABLE.read_text().splitlines()[1:])
    return {name: int(least) for name, least in rows}


def below(shares: Mapping[str, int]) -> list[str]:
    """A line for each room that is below its floor, is not there, or has none."""
    least = floors()
    return [
        f"{name}: {shares.get(name, 'not there')}, at least {least.get(name, 'unknown')}"
        for name in sorted({*shares, *least})
        if name not in least or shares.get(name, -1) < least[name]
    ]


def lowered(patches: str) -> list[str]:
    """The floors that a history of patches of the table lowers: read backwards, they are raised."""
    other = {"-": "+", "+": "-"}
    return raised(re.sub(r"^[-+](?=\w)", lambda sign: other[sign[0]], patches, flags=re.MULTILINE))
