"""docs/nvidia-driver.md names a stage for everything that only a card can say."""

import importlib
import pkgutil
import re
from typing import NamedTuple

import pytest

import lab.tests
from tests.gpu import hostile, stages
from tests.support.places import REPOSITORY

PAGE, RESULTS = ((REPOSITORY / "docs" / name).read_text() for name in ("nvidia-driver.md", "gpu-results.md"))
STAGE = re.compile(r"\b[EFP]\d+\b")
IDS = frozenset(name.split()[0] for name in stages.NAMES)


class Row(NamedTuple):
    assumption: str
    state: str
    decided_by: str


def rows(heading: str, page: str = PAGE) -> list[list[str]]:
    table = page.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    found = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in cells] for cells in found[2:]]


ASSUMPTIONS = [Row(*cells) for cells in rows("What a card has to decide")]


def test_tables_are_read() -> None:
    assert len(ASSUMPTIONS) > 80
    assert len(rows("Attempts that a card decides", RESULTS)) > 10


@pytest.mark.parametrize("row", ASSUMPTIONS, ids=lambda row: row.assumption[:50])
def test_unverified_row_names_an_existing_stage(row: Row) -> None:
    named = STAGE.findall(row.decided_by)
    assert set(named) <= IDS, f"no such stage: {row.decided_by}"
    assert named or row.state.startswith("decided here"), "nothing decides it"


STATES = ("decided here: ", "seen on an H200: ", "only a card: ", "not here: made up: ")


@pytest.mark.parametrize("row", ASSUMPTIONS, ids=lambda row: row.assumption[:50])
def test_each_row_has_one_of_four_states(row: Row) -> None:
    assert row.state.startswith(STATES)


def test_rows_decided_in_the_laboratory_are_those_that_its_tests_claim() -> None:
    shown = {
        row.assumption: set(re.findall(r"`(\w+\.\w+)`", row.state.partition(" (before:")[0]))
        for row in ASSUMPTIONS
        if row.state.startswith(STATES[0])
    }
    claimed: dict[str, set[str]] = {}
    for module in pkgutil.iter_modules(lab.tests.__path__):
        place = importlib.import_module(f"lab.tests.{module.name}")
        for name, value in vars(place).items():
            claim = getattr(value, "claim", None)
            if claim is not None and value.__module__ == place.__name__:
                for row in claim.rows:
                    claimed.setdefault(row, set()).add(f"{module.name}.{name}")
    assert shown == claimed
    assert len(shown) >= 60


def test_attempts_are_those_of_the_run() -> None:
    assert sorted(rows("Attempts that a card decides", RESULTS)) == sorted(
        [one.name, one.decides] for one in hostile.DECIDED_ON_A_CARD
    )


def test_pages_name_existing_stages_only() -> None:
    for page in ("nvidia-driver.md", "gpu-results.md"):
        text = (REPOSITORY / "docs" / page).read_text()
        assert set(re.findall(r"(?<![\w.])[EFP]\d+\b", text)) <= IDS, page
