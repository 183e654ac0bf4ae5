"""Names of RM's controls by number, as a table for C, from what the project knows of the driver's headers."""

import sys
from pathlib import Path


def main() -> None:
    *facts, out = map(Path, sys.argv[1:])
    names: dict[int, str] = {}
    for path in facts:
        for line in path.read_text().splitlines()[1:]:
            symbol, number = line.split("\t")[:2]
            names.setdefault(int(number, 16), symbol.strip("()"))
    rows = [f'{{0x{number:x}u, "{name}"}},' for number, name in sorted(names.items())]
    out.write_text("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
