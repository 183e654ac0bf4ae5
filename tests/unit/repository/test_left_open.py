"""A run whose tests leave many descriptors open fails, unless it ends for another reason."""

import sys
from pathlib import Path

import pytest

from tests.support.commands import attempt
from tests.support.left_open import MORE_MAX
from tests.support.places import REPOSITORY

LEAVES = """
import os

def test_that_leaves():
    for _ in range({number}):
        os.memfd_create("left")
    assert {good}
"""


@pytest.mark.parametrize(
    ("number", "good", "said"),
    [(MORE_MAX + 1, True, True), (MORE_MAX, True, False), (MORE_MAX + 1, False, False)],
)
def test_descriptors_left_open_fail_the_run(tmp_path: Path, number: int, good: bool, said: bool) -> None:
    (tmp_path / "test_one.py").write_text(LEAVES.format(number=number, good=good))
    options = ["-p", "tests.support.left_open", "-p", "no:cacheprovider"]
    ended = attempt(sys.executable, "-m", "pytest", *options, tmp_path, cwd=REPOSITORY)
    assert (ended.status, f"{number} /memfd:left (deleted)" in ended.out) == (int(said or not good), said), (
        ended
    )
