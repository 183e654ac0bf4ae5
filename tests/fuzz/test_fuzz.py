"""Every fuzzer for a while, as many at a time as there are processors. FUZZ_SECONDS: each for so long instead."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.fuzz import targets
from tests.fuzz.targets import TARGETS, Found, Target

_SECONDS = int(os.environ.get("FUZZ_SECONDS", "0"))
_AT_ONCE = os.cpu_count() or 1
# Slow to start, or with sanitizers in a busy machine: so few that a fuzzer which does nothing is seen.
_TRIED_MIN = 20


def seconds(target: Target) -> int:
    return _SECONDS or target.seconds


# The first test of the module waits for whatever runs beside it; none waits for more than all of them.
pytestmark = pytest.mark.timeout(300 + sum(map(seconds, TARGETS)))


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest) -> Iterator[dict[str, Future[Found]]]:
    """All those that were selected, started as soon as there is a processor for them."""
    chosen = {
        item.callspec.params["name"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.path == request.path and hasattr(item, "callspec")
    }
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield {
            target.name: pool.submit(targets.run, target, seconds(target))
            for target in TARGETS
            if target.name in chosen
        }


@pytest.mark.parametrize("name", [target.name for target in TARGETS])
def test_nothing_is_found(running: dict[str, Future[Found]], name: str) -> None:
    found = running[name].result()
    if found.status == 0 and found.tried < _TRIED_MIN:
        # A busy machine: its time went into its start.
        [target] = [one for one in TARGETS if one.name == name]
        found = targets.run(target, 5 * seconds(target))
    kept = f"\nthe input is {found.artifact}" if found.artifact else ""
    assert found.status == 0, f"{found.said}{kept}"
    assert found.tried >= _TRIED_MIN, found.said
