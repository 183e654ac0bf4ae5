"""Tests that leave descriptors open in their own process fail the run, which would come to numbers that no
one test expects.
"""

import os
import re
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

# Of a whole run: modules, gRPC's pollers. A test that leaves some is not seen by itself, and its suite is.
MORE_MAX = 64
AT_START, LEFT = pytest.StashKey[Counter[str]](), pytest.StashKey[Counter[str]]()


def by_kind() -> Counter[str]:
    """How many descriptors are open, by what they are of, without its numbers."""
    found = Counter[str]()
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the list itself
            found[re.sub(r"\d+", "N", os.readlink(f"/proc/self/fd/{number}"))] += 1
    return found


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[AT_START] = by_kind()


def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
    left = by_kind() - session.config.stash[AT_START]
    # A test that failed had no turn to close its files.
    if left.total() > MORE_MAX and not reporter.stats.keys() & {"failed", "error"}:
        session.config.stash[LEFT] = left
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if left := config.stash.get(LEFT, None):
        terminalreporter.section(f"{left.total()} descriptors left open by tests", sep="=")
        terminalreporter.write_line("\n".join(f"{count:5} {kind}" for kind, count in left.most_common()))
