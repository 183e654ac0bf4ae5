"""What the Makefile names by itself is there: `make` says nothing of a test file of another name."""

from __future__ import annotations

import subprocess

from tests.support.places import REPOSITORY


def test_files_of_the_sanitized_run_are_there() -> None:
    database = subprocess.run(
        ["make", "--print-data-base", "--dry-run", "help"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    [hardest] = [line for line in database.splitlines() if line.startswith("hardest := ")]
    names = hardest.removeprefix("hardest := ").split()
    assert names
    assert [name for name in names if not (REPOSITORY / name).exists()] == []
