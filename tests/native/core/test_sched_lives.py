"""Random lives of cards under the scheduler; what must always hold is in sched_sim/check.c: offline never
beside online work or within the hold, one per class and card, gangs whole, nobody idle who could run, quotas
over every window.
"""

import ctypes
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.native import scheduling
from tests.support.commands import run


# A gang's beginnings reported out of order: each left a little of its quota uncharged.
@example(choices=b"\xb3\x91\xf0\x81")
@given(choices=st.binary(max_size=200))
@settings(max_examples=500, deadline=None)
def test_random_scenario_keeps_the_invariants(sched: ctypes.CDLL, choices: bytes) -> None:
    _, error = scheduling.scenario(sched, choices)
    assert not error


def test_many_scenarios_keep_the_invariants(sched: ctypes.CDLL) -> None:
    events = 0
    for number in range(1500):
        done, error = scheduling.scenario(sched, number.to_bytes(4, "little"))
        assert not error, number
        events += done
    assert events > 1_000_000


def test_lives_with_sanitizers(tmp_path: Path) -> None:
    program = tmp_path / "stress"
    sanitizers = ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    sources = [*scheduling.SOURCES, scheduling.SIMULATOR / "stress.c"]
    run("gcc", *scheduling.C_FLAGS, *sanitizers, "-o", program, *sources)
    run(program, "0", "300")
