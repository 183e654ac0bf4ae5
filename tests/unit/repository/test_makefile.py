"""What the Makefile names by itself is there: `make` says nothing of a test file of another name."""

import functools
import re
from pathlib import Path

import pytest
import yaml

from tests.support.commands import attempt, run
from tests.support.places import REPOSITORY

TESTS = REPOSITORY / "tests"
SUITES = {f"tests/{path.relative_to(TESTS).parts[0]}" for path in TESTS.rglob("test_*.py")}


@functools.cache
def database() -> str:
    return run("make", "--print-data-base", "--dry-run", "help", cwd=REPOSITORY)


def variable(name: str) -> list[str]:
    [value] = [line for line in database().splitlines() if line.startswith(f"{name} := ")]
    return value.removeprefix(f"{name} := ").split()


@pytest.mark.parametrize("name", ["hardest", "promised", "apart", "guests", "not_unit"])
def test_tests_that_are_named_are_there(name: str) -> None:
    assert variable(name)
    assert [each for each in variable(name) if not (REPOSITORY / each).exists()] == []


def test_parts_are_all_suites_once() -> None:
    named = [suite for part in variable("parts") for suite in variable(f"part_{part}")]
    assert len(named) == len(set(named))
    # These need a GPU or a cluster of their own.
    assert SUITES - set(named) == {"tests/gpu", "tests/kubernetes"}
    assert set(named) - SUITES <= {"tests/lab"}


def test_example_of_a_public_ci_has_every_part_with_its_minutes() -> None:
    text = (REPOSITORY / ".github" / "workflows" / "ci.yaml").read_text()
    jobs = yaml.safe_load(text)["jobs"]["tests"]["strategy"]["matrix"]["include"]
    checks = {"lint", "coverage"}
    minutes = {job["part"].removeprefix("test-"): job["minutes"] for job in jobs}
    assert set(minutes) == {
        *checks,
        *variable("parts"),
        *(name.removeprefix("test-") for name in variable("again")),
    }
    said = run("make", "help", cwd=REPOSITORY)
    told = said.partition("make test-PART")[2].partition("\nmake ")[0]
    assert dict(re.findall(r"(\w+) (\d+)", told)) == {
        name: str(number) for name, number in minutes.items() if name not in checks
    }


def test_folder_of_the_clone_is_in_no_recipe_without_quotes() -> None:
    """It may have a space in its name. Other paths are relative to it."""
    text = (REPOSITORY / "Makefile").read_text()
    whole = re.findall(r"(?m)^\t.*(.)(?<!\$)\$\((?:abspath|realpath|CURDIR)\b", text)
    assert set(whole) == {"'"}


def test_tests_in_a_folder_with_a_space_are_refused_in_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    done = attempt(REPOSITORY / "tools" / "setup.sh", "test", cwd=folder)
    said = f'setup: no engine takes mgpu from "{folder}": clone it where no space is in the path\n'
    assert (done.status, done.out, done.err) == (1, "", said)
