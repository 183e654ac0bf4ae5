"""Runs of tests whose output is kept to their end say meanwhile how far they are."""

import re
import sys
from pathlib import Path

import pytest

from tests.support.commands import attempt, run
from tests.support.places import REPOSITORY
from tests.support.told import how_far

TELLS = [sys.executable, "-m", "tests.support.told"]
DOTS = """\
collected 12 items

tests/unit/test_a.py ....s.                                              [ 50%]
tests/unit/test_b.py ..
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "0 tests, at nothing yet"),
        ("setup: fetches what is missing\n", "0 tests, at setup: fetches what is missing"),
        (DOTS.rstrip("\n"), "8 tests, 50 %, at tests/unit/test_b.py"),
        (f"{DOTS}a guest is up\n", "8 tests, 50 %, at a guest is up"),
        ("tests/a/test_a.py ..\n....  [ 60%]\n.", "7 tests, 60 %, at tests/a/test_a.py"),
    ],
)
def test_how_far_pytest_is(text: str, said: str) -> None:
    assert how_far(text) == said


def test_command_is_told_of_and_printed_at_its_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = "echo 'tests/a/test_a.py .'; while [ ! -e \"$0\" ]; do sleep 0.05; done; echo end >&2; exit 3"
    teller: list[str | Path] = [
        "sh",
        "-c",
        '"$@" & sleep 3; touch "$0"; wait $!',
        tmp_path / "go",
        *TELLS,
        "part",
        log,
        "0.5",
    ]
    done = attempt(*teller, "sh", "-c", script, tmp_path / "go", cwd=REPOSITORY)
    lines = done.out.splitlines()
    assert done.status == 3
    assert lines[-2:] == ["tests/a/test_a.py .", "end"]
    assert set(lines[:-2]) == {"part, 0 min: 1 tests, at tests/a/test_a.py"}


def test_every_run_that_is_kept_to_its_end_tells() -> None:
    [named] = re.findall(r"(?m)^runs := (.*)$", (REPOSITORY / "Makefile").read_text())
    for name in re.findall(r"run-\w+", named)[1:]:
        recipe = re.search(rf"(?m)^{name}:\n((?:\t.*\n)+)", (REPOSITORY / "Makefile").read_text())
        assert recipe, name
        assert recipe[1].splitlines()[-1].startswith("\t@$(told) "), name
    assert "tests.support.told run-others " in run("make", "--dry-run", "run-others", cwd=REPOSITORY)
