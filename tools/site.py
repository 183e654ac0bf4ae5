"""Builds the pages as a site: `python -m tools.site FOLDER`. They stay readable, and linked, as plain files.

mkdocs takes pages of one folder, so the pages and the files that they link to are copied into one first.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
CONFIG = TOP / "docs" / "mkdocs.yml"
_LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")


def pages() -> list[Path]:
    """Every page: those of docs, and at the top."""
    return [
        *sorted(TOP.glob("*.md")),
        *sorted((TOP / "docs").rglob("*.md")),
        TOP / "tests/recordings/README.md",
    ]


def linked(page: Path) -> set[Path]:
    """The files that a page links to, such as pictures and manifests."""
    found = {(page.parent / link).resolve() for link in _LINK.findall(page.read_text())}
    return {path for path in found if path.is_file()}


def build(folder: Path) -> int:
    """Builds FOLDER/html. Status 1: a link leads nowhere, or a page is in no reading order."""
    source = folder / "source"
    shutil.rmtree(source, ignore_errors=True)
    for path in {*pages(), *(path for page in pages() for path in linked(page))}:
        target = source / path.relative_to(TOP)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    config = folder / "mkdocs.yml"
    config.write_text(CONFIG.read_text())
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean", "--config-file", str(config)]
    # The theme's advertisement of its successor, as a warning of each build.
    return subprocess.run(command, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=False).returncode


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1])))
