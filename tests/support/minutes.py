"""Where a run's time went: a line for each folder of tests, for who has to keep it short."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Protocol


class Timed(Protocol):
    """A report of pytest's: of a test's set-up, of the test, or of what comes after."""

    nodeid: str
    duration: float


def suite(nodeid: str) -> str:
    """tests/unit for tests/unit/specs/test_a.py::test_b."""
    return "/".join(nodeid.partition("::")[0].split("/")[:2])


def by_suite(reports: Iterable[Timed]) -> list[str]:
    """A table, the longest first. A fixture of several tests counts with the one that was there first."""
    seconds: defaultdict[str, float] = defaultdict(float)
    tests: defaultdict[str, set[str]] = defaultdict(set)
    for report in reports:
        name = suite(report.nodeid)
        seconds[name] += report.duration
        tests[name].add(report.nodeid)
    lines = [
        f"{seconds[name] / 60:7.1f} min {len(tests[name]):6} tests  {name}"
        for name in sorted(seconds, key=lambda name: -seconds[name])
    ]
    return [*lines, f"{sum(seconds.values()) / 60:7.1f} min {sum(map(len, tests.values())):6} tests  in all"]
