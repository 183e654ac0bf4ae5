"""Print the files that a Python package installs, one a line, relative to the current directory.

The build reads the folders instead of a list by hand: a module that is forgotten in a list is missed only by
whoever imports the installed package.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

# The last four are the page of `mgpu web`.
INSTALLED_SUFFIXES = frozenset(
    {".py", ".json", ".typed", ".preset", ".service", ".yaml", ".html", ".css", ".js", ".svg"}
)


def sources(package: str, base: Path) -> Iterator[str]:
    """Paths of `package` below `base`, sorted, with forward slashes."""
    for folder, folders, names in os.walk(base / package):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            if Path(name).suffix in INSTALLED_SUFFIXES:
                yield (Path(folder) / name).relative_to(base).as_posix()


if __name__ == "__main__":
    base = Path(__file__).resolve().parents[1]
    for package in sys.argv[1:]:
        print("\n".join(sources(package, base)))
