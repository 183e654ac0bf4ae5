"""Every fuzzer for FUZZ_SECONDS, 120 unless told otherwise, beside whatever else is tested: see
conftest.py."""

import pytest

from tests.fuzz import targets
from tests.fuzz.beside import SECONDS, Beside
from tests.fuzz.targets import TARGETS

# Slow to start, or with sanitizers in a busy machine: so few that a fuzzer which does nothing is seen.
_TRIED_MIN = 20

# None waits for more than all of them, each of which is built first.
pytestmark = pytest.mark.timeout(300 + len(TARGETS) * (SECONDS + 30))


@pytest.mark.parametrize("name", [target.name for target in TARGETS])
def test_fuzzer_finds_no_crash(fuzzers: Beside, name: str) -> None:
    found = fuzzers.found(name)
    if found.status == 0 and found.tried < _TRIED_MIN:
        # A busy machine: its time went into its start.
        [target] = [one for one in TARGETS if one.name == name]
        found = targets.run(target, SECONDS)
    kept = f"\nthe input is {found.artifact}" if found.artifact else ""
    assert found.status == 0, f"{found.said}{kept}"
    assert found.tried >= _TRIED_MIN, found.said
