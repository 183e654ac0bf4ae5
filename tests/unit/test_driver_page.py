"""docs/nvidia-driver.md names a stage for everything that only a card can say."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from tests.gpu import hostile, stages
from tests.support.places import REPOSITORY

PAGE = (REPOSITORY / "docs" / "nvidia-driver.md").read_text()
STAGE = re.compile(r"\b[EFP]\d+\b")
IDS = frozenset(name.split()[0] for name in stages.NAMES)


class Row(NamedTuple):
    assumption: str
    state: str
    decided_by: str


def rows(heading: str) -> list[list[str]]:
    table = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    found = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in cells] for cells in found[2:]]


ASSUMPTIONS = [Row(*cells) for cells in rows("What a card has to decide")]


def test_the_tables_are_read() -> None:
    assert len(ASSUMPTIONS) > 80
    assert len(rows("Attempts that a card decides")) > 10


@pytest.mark.parametrize("row", ASSUMPTIONS, ids=lambda row: row.assumption[:50])
def test_unverified_row_names_an_existing_stage(row: Row) -> None:
    named = STAGE.findall(row.decided_by)
    assert set(named) <= IDS, f"no such stage: {row.decided_by}"
    assert named or row.state.startswith("verified"), "nothing decides it"


def test_the_attempts_are_those_of_the_run() -> None:
    assert sorted(rows("Attempts that a card decides")) == sorted(
        [one.name, one.decides] for one in hostile.DECIDED_ON_A_CARD
    )


def test_pages_name_existing_stages_only() -> None:
    for page in ("nvidia-driver.md", "gpu-results.md"):
        text = (REPOSITORY / "docs" / page).read_text()
        assert set(re.findall(r"(?<![\w.])[EFP]\d+\b", text)) <= IDS, page
