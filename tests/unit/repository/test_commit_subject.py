"""Subjects of commits as CONTRIBUTING.md asks for them, judged by the hook's own program."""

import sys
from pathlib import Path

import pytest

from tests.support import tree
from tests.support.commands import attempt, run
from tests.support.places import REPOSITORY
from tools.subject import amiss

# Every commit after this one is judged.
BASE = "a38641d72aa9"


def judged(tmp_path: Path, message: str) -> tuple[int, str]:
    path = tmp_path / "COMMIT_EDITMSG"
    path.write_text(message)
    done = attempt(sys.executable, "-m", "tools.subject", path, cwd=REPOSITORY)
    return done.status, done.out


@pytest.mark.parametrize(
    "subject",
    [
        "holder: keep a listener until its peer has answered",
        "tests/native: pass the handle on",
        "sim, lab: address each card by its bus",
        "fixup! holder: whatever",
        'Revert "holder: keep it"',
    ],
)
def test_imperative_is_taken(tmp_path: Path, subject: str) -> None:
    assert judged(tmp_path, f"{subject}\n\nWhy.\n") == (0, "")


@pytest.mark.parametrize(
    ("subject", "why"),
    [
        ("keep a listener", "area: imperative"),
        ("Merge branch 'main' into topic", "area: imperative"),
        ("holder: the listener stays", '"the" is no imperative'),
        ("holder: listeners stay", '"listeners" is no imperative'),
        ("holder: added a wait", '"added" is no imperative'),
        ("holder: adding a wait", '"adding" is no imperative'),
        ("holder: keep " + "x" * 100, "at most 100"),
    ],
)
def test_other_subject_is_refused_in_a_line(tmp_path: Path, subject: str, why: str) -> None:
    status, printed = judged(tmp_path, f"{subject}\n")
    assert status == 1
    assert len(printed.splitlines()) == 1
    assert why in printed


def test_commits_since_the_base_have_imperatives() -> None:
    if not tree.has(BASE):
        pytest.skip("no history from there: a source archive or a shallow clone")
    subjects = run(*tree.GIT, "log", "--no-merges", "--format=%s", f"{BASE}..", cwd=REPOSITORY).splitlines()
    assert [f"{subject}: {why}" for subject in subjects if (why := amiss(subject))] == []
