"""Where the laboratory keeps what it fetched and made: all of it below build/lab."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
BUILD = REPOSITORY / "build"
LAB = BUILD / "lab"


@contextmanager
def made_anew(folder: Path) -> Iterator[Path]:
    """A folder beside `folder` that takes its place when the block ends well; a half-made one never does."""
    new = folder.with_name(f"{folder.name}.new")
    for old in (new, folder):
        if old.exists():
            shutil.rmtree(old)
    new.mkdir(parents=True)
    try:
        yield new
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    new.rename(folder)
