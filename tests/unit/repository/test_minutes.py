"""The table of minutes that a run ends with."""

from dataclasses import dataclass

from tests.support import minutes


@dataclass
class Report:
    nodeid: str
    duration: float


def test_test_counts_once_with_its_set_up_and_its_end_in_its_folder() -> None:
    assert minutes.by_suite(
        [
            Report("tests/unit/specs/test_a.py::test_one[x::y]", 6.0),
            Report("tests/unit/specs/test_a.py::test_one[x::y]", 30.0),
            Report("tests/containers/test_b.py::test_two", 90.0),
            Report("tests/unit/test_c.py::test_three", 24.0),
        ]
    ) == [
        "    1.5 min      1 tests  tests/containers",
        "    1.0 min      2 tests  tests/unit",
        "    2.5 min      3 tests  in all",
    ]
