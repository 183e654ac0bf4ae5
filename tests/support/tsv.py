"""Tables with a line of names, and tabs between the fields."""

import csv
from pathlib import Path


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as lines:
        return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
