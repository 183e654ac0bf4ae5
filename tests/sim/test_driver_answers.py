"""The simulated card answers as NVIDIA's driver did, but for the differences that are listed."""

import sys
from pathlib import Path

import pytest

from lab.play import compare
from sim.cards import running
from tests.support.commands import run

REPOSITORY = Path(__file__).resolve().parents[2]
DRIVER = compare.ANSWERS.stem
OPEN = 3  # it only falls


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> compare.Answers:
    """By a process of its own, which forks."""
    with running(
        tmp_path_factory.mktemp("card"), "a10", rm_call_us=0, options=("--driver-version", DRIVER)
    ) as card:
        player = [sys.executable, "-m", "lab.play", "--card"]
        printed = run(*player, card.card_socket, cwd=REPOSITORY, timeout_s=400)
    return compare.answers(printed.splitlines())


@pytest.fixture(scope="module")
def nvidia() -> compare.Answers:
    return compare.answers(compare.ANSWERS.read_text().splitlines())


def test_each_difference_has_an_owner(played: compare.Answers, nvidia: compare.Answers) -> None:
    listed = {row.key: (row.simulated, row.nvidia) for row in compare.known()}
    assert compare.differ(played, nvidia) == listed


def test_seeded_mistake_is_a_difference(played: compare.Answers, nvidia: compare.Answers) -> None:
    key = ("objects.frees and what is not there", "control C C 0x201 128", 1)
    assert set(compare.differ({**played, key: "0x0"}, nvidia)) - set(compare.differ(played, nvidia)) == {key}


def test_fewer_differences_are_open_and_never_more() -> None:
    rows = compare.known()
    assert sum(row.owner == "open" for row in rows) <= OPEN
    assert {row.owner for row in rows} <= set(compare.OWNERS)
    assert {row.wrong for row in rows} <= set(compare.WRONG)
    assert all(row.reason for row in rows)


def test_page_is_written_from_the_tables() -> None:
    assert compare.PAGE.read_text() == compare.page(), "python -m lab.play.compare"
