"""What the Makefile names by itself is there: `make` says nothing of a test file of another name."""

from __future__ import annotations

import shlex
import subprocess

import pytest
import yaml

from tests.support.places import REPOSITORY


@pytest.mark.parametrize("variable", ["hardest", "promised", "apart", "guests", "not_unit"])
def test_tests_that_are_named_are_there(variable: str) -> None:
    database = subprocess.run(
        ["make", "--print-data-base", "--dry-run", "help"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    [value] = [line for line in database.splitlines() if line.startswith(f"{variable} := ")]
    names = value.removeprefix(f"{variable} := ").split()
    assert names
    assert [name for name in names if not (REPOSITORY / name).exists()] == []


def test_the_example_of_a_public_ci_runs_every_suite() -> None:
    text = (REPOSITORY / ".github" / "workflows" / "ci.yaml").read_text()
    parts = yaml.safe_load(text)["jobs"]["tests"]["strategy"]["matrix"]["include"]
    words = [word for part in parts for word in shlex.split(part["run"])]
    named = {word.removeprefix("PYTEST=") for group in words for word in group.split()}
    suites = {f"tests/{path.parent.name}" for path in (REPOSITORY / "tests").glob("*/test_*.py")}
    # These need a GPU or a cluster of their own.
    assert suites - named <= {"tests/gpu", "tests/kubernetes"}
    assert {name for name in named if name.startswith("tests/")} <= suites | {"tests/mutants", "tests/lab"}
