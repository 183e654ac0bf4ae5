"""Print requirements of pyproject.toml, one a line: `requirements.py build run test` (any of them)."""

import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def requirements(groups: Iterable[str]) -> Iterator[str]:
    """build: to build the wheel; run: what mgpu imports; else an extra's name, or KeyError."""
    document = tomllib.loads(PYPROJECT.read_text())
    found: dict[str, list[str]] = {
        "build": document["build-system"]["requires"],
        "run": document["project"]["dependencies"],
        **document["project"]["optional-dependencies"],
    }
    for group in groups:
        yield from found[group]


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1:])))
