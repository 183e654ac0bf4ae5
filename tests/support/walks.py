"""Through which files of ours a way leads: one is entered when a function of it is called from another."""

import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath
from types import FrameType

from tests.support.commands import run
from tests.support.places import REPOSITORY

_OURS = f"{REPOSITORY}/"
# Of `base` are helpers of a few lines.
_NOT_OURS = ("base/", "build/", "tests/")

Walk = Counter[str]
"""How often each file is entered; a header is its source."""


def _unit(path: str) -> str:
    """ "": it is not ours."""
    absolute = os.path.normpath(path)
    inside = absolute.removeprefix(_OURS)
    if inside == absolute or inside.startswith(_NOT_OURS):
        return ""
    return inside if inside.endswith(".py") else str(PurePosixPath(inside).with_suffix(".c"))


@contextmanager
def walked() -> Iterator[Walk]:
    """Of Python, in this thread."""
    walk: Walk = Counter()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event != "call" or not (file := _unit(frame.f_code.co_filename)):
            return
        above = frame.f_back
        while above and not (caller := _unit(above.f_code.co_filename)):
            above = above.f_back
        if not above or caller != file:
            walk[file] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield walk
    finally:
        sys.setprofile(before)


def of_steps(library: str, steps: Sequence[int]) -> Walk:
    """Of C: where functions begin in the library, 0 where the last one returns."""
    functions = sorted(set(steps) - {0})
    asked = "".join(f"{each:#x}\n" for each in functions)
    told = run("addr2line", "-e", library, stdin=asked)
    files = {
        each: _unit(line.rpartition(":")[0]) for each, line in zip(functions, told.splitlines(), strict=True)
    }
    walk: Walk = Counter()
    inside = [""]
    for step in steps:
        if not step:
            inside = inside[:-1] or [""]
            continue
        file = files[step] or inside[-1]
        walk[file] += file not in ("", inside[-1])
        inside.append(file)
    return +walk
