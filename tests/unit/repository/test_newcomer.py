"""Five changes as CONTRIBUTING.md tells them: each is made in a scratch copy, whole and with one forgotten.

Whole, the tests that judge it pass. With a place forgotten one of them fails and names what is missing. A
place that no step of the page names, or a step that is no place, is a mistake of the page.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.commands import Done, attempt, run
from tests.support.places import REPOSITORY
from tests.support.tree import copy_to
from tests.unit.newcomer import CHANGES, Change, Place

LIMIT_S = 600.0
pytestmark = pytest.mark.timeout(LIMIT_S)

PAGE = (REPOSITORY / "CONTRIBUTING.md").read_text()
_FILE = re.compile(r"`([\w./-]+\.(?:build|c|h|py|def|tsv|json|md|yaml))`")


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the sources, which commands run in by this Python."""
    base = tmp_path_factory.mktemp("newcomer")
    copy_to(base)
    run("git", "init", "-q", cwd=base)
    yield base
    shutil.rmtree(base)


def files(tree: Path) -> list[Path]:
    return [path for path in tree.rglob("*") if path.is_file() and ".git" not in path.parts]


@contextmanager
def made(tree: Path, change: Change, without: Place | None = None) -> Iterator[None]:
    """The change is made in the copy, but for one of its places."""
    before = {path: path.read_bytes() for path in files(tree)}
    for place in change.places:
        if place is not without:
            place.apply(tree)
    try:
        yield
    finally:
        for path in files(tree):
            if path not in before:
                path.unlink()
        for path, data in before.items():
            if path.read_bytes() != data:
                path.write_bytes(data)


def check(tree: Path, change: Change) -> Done:
    """The tests that judge the change."""
    options = ["-q", "-p", "no:cacheprovider", "--noconftest"]
    # Without conftest.py, whose fixtures of containers take half of the time.
    argv = [sys.executable, "-B", "-m", "pytest", *options, *change.checks]
    return attempt(*argv, cwd=tree, timeout_s=LIMIT_S)


FORGOTTEN = [
    pytest.param(change, place, id=f"{name}-{place.step.strip('`').replace(' ', '-')}-{at}")
    for name, change in CHANGES.items()
    for at, place in enumerate(change.places)
    if place.named
]


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_change_as_the_page_says_is_whole(scratch: Path, change: Change) -> None:
    with made(scratch, change):
        done = check(scratch, change)
    assert done.status == 0, done


@pytest.mark.parametrize(("change", "place"), FORGOTTEN)
def test_forgotten_place_is_named(scratch: Path, change: Change, place: Place) -> None:
    with made(scratch, change, place):
        done = check(scratch, change)
    assert done.status == 1, done
    assert re.search(place.named, done.out + done.err), done


def test_changes_compile_together(scratch: Path, tmp_path: Path) -> None:
    """The engine library, of a tree with all of them."""
    env = {"PATH": f"{Path(sys.prefix) / 'bin'}:{os.environ['PATH']}"}
    with ExitStack() as stack:
        for change in CHANGES.values():
            stack.enter_context(made(scratch, change))
        run("meson", "setup", tmp_path, ".", "-Dbuildtype=plain", cwd=scratch, env=env)
        run("ninja", "native_sched/libmgpu_engine.so", cwd=tmp_path, env=env, timeout_s=LIMIT_S)


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
