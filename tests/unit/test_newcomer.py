"""Five changes as CONTRIBUTING.md tells them: each is made in a scratch copy, whole and with one forgotten.

Whole, the tests that judge it pass. With a place forgotten one of them fails and names what is missing. A
place that no step of the page names, or a step that is no place, is a mistake of the page.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.places import REPOSITORY
from tests.support.tree import everything, relative
from tests.unit.newcomer import CHANGES, Change, Place

pytestmark = pytest.mark.timeout(600)

PAGE = (REPOSITORY / "CONTRIBUTING.md").read_text()
_FILE = re.compile(r"`([\w./-]+\.(?:build|c|h|py|def|tsv|json|md|yaml))`")


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the sources, which commands run in by this Python."""
    base = tmp_path_factory.mktemp("newcomer")
    for path in everything():
        target = base / relative(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    subprocess.run(["git", "init", "-q"], cwd=base, check=True)
    yield base
    shutil.rmtree(base)


def check(tree: Path, change: Change) -> tuple[int, str]:
    """The exit status and output of the tests that judge the change."""
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:rerunfailures", "--noconftest"]
    # Without conftest.py, whose fixtures of containers take half of the time.
    done = subprocess.run(
        [sys.executable, "-B", "-m", "pytest", *options, *change.checks],
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def files(tree: Path) -> list[Path]:
    return [path for path in tree.rglob("*") if path.is_file() and ".git" not in path.parts]


def make(tree: Path, change: Change, without: Place | None) -> Callable[[], None]:
    """Makes the change, and says how it is undone."""
    before = {path: path.read_bytes() for path in files(tree)}
    for place in change.places:
        if place is not without:
            place.apply(tree)

    def undo() -> None:
        for path in files(tree):
            if path not in before:
                path.unlink()
        for path, data in before.items():
            if path.read_bytes() != data:
                path.write_bytes(data)

    return undo


FORGOTTEN = [
    pytest.param(change, place, id=f"{name}-{place.step.strip('`').replace(' ', '-')}-{at}")
    for name, change in CHANGES.items()
    for at, place in enumerate(change.places)
    if place.named
]


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_change_as_the_page_says_is_whole(scratch: Path, change: Change) -> None:
    undo = make(scratch, change, None)
    try:
        status, printed = check(scratch, change)
    finally:
        undo()
    assert status == 0, printed


@pytest.mark.parametrize(("change", "place"), FORGOTTEN)
def test_forgotten_place_is_named(scratch: Path, change: Change, place: Place) -> None:
    undo = make(scratch, change, place)
    try:
        status, printed = check(scratch, change)
    finally:
        undo()
    assert status == 1, printed
    assert re.search(place.named, printed), printed


def steps(change: Change) -> str:
    """The numbered steps of the change's part of the page."""
    part = PAGE.partition(f"### {change.page}\n")[2].partition("\n##")[0]
    found = re.findall(r"^\d\. .*(?:\n   .*)*", part, re.MULTILINE)
    assert found, change.page
    return "\n".join(found)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_page_has_a_step_for_each_place_and_no_other(change: Change) -> None:
    said = steps(change)
    assert [place.step for place in change.places if place.step not in said] == []
    known = {name for place in change.places for name in _FILE.findall(place.step)}
    assert set(_FILE.findall(said)) == known
