"""What the Makefile names by itself is there: `make` says nothing of a test file of another name."""

from __future__ import annotations

import subprocess

import pytest

from tests.support.places import REPOSITORY


@pytest.mark.parametrize("variable", ["hardest", "promised", "apart", "guests"])
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
