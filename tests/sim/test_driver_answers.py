"""The simulated card answers as NVIDIA's driver did, but for the differences that are listed."""

import pytest

from lab.play import compare, simulated

OPEN = 3  # it only falls


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> compare.Answers:
    return simulated.answers(tmp_path_factory.mktemp("card"))


@pytest.fixture(scope="module")
def nvidia() -> compare.Answers:
    return compare.recorded()


def test_each_difference_has_an_owner(played: compare.Answers, nvidia: compare.Answers) -> None:
    assert compare.unlisted(compare.differ(played, nvidia)) == []


def test_seeded_mistake_is_a_difference(played: compare.Answers, nvidia: compare.Answers) -> None:
    key = ("objects.frees and what is not there", "control C C 0x201 128", 1)
    assert set(compare.differ({**played, key: "0x0"}, nvidia)) - set(compare.differ(played, nvidia)) == {key}


def test_fewer_differences_are_open_and_never_more() -> None:
    rows = compare.known()
    assert sum(row.owner == "open" for row in rows) <= OPEN
    assert {row.owner for row in rows} <= set(compare.OWNERS)
    assert {row.wrong for row in rows} <= set(compare.WRONG)
    assert all(row.reason for row in rows)


def test_new_difference_is_open_until_it_has_another_owner(
    played: compare.Answers, nvidia: compare.Answers
) -> None:
    assert compare.still_open(compare.differ(played, nvidia)) <= OPEN
    key = ("objects.frees and what is not there", "control C C 0x201 128", 1)
    seeded = compare.differ({**played, key: "0x0"}, nvidia)
    assert compare.still_open(seeded) == compare.still_open(compare.differ(played, nvidia)) + 1


def test_other_drivers_and_cards_answer_otherwise_and_why() -> None:
    first, rows = compare.recorded(), compare.others()
    assert len({(row.owner, row.key) for row in rows}) == len(rows)
    for row in rows:
        assert row.reason
        there = compare.differ(first, compare.recorded(row.owner))
        assert there[row.key] == (row.simulated, row.nvidia)


def test_page_is_written_from_the_tables() -> None:
    assert compare.PAGE.read_text() == compare.page(), "python -m lab.play.compare"
