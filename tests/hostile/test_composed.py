"""Whatever is composed, the card has nothing for long that nobody pays for: some seconds of it here, hours in
`make soak`. A failure names the attack; MGPU_ATTACK_SEED repeats the order.
"""

import os
import random

import pytest

from tests.hostile import composed
from tests.support.programs import Programs

SEED = 5
SECONDS, HOURS_S = 30, float(os.environ.get("MGPU_ATTACK_HOURS", "2")) * 3600


# One of each way to have what is in no ledger: a call that is changed, a file that is given away.
KINDS = {
    "changed call": composed.Attack("context", "late", "itself", "nobody", restart=False, seed=SEED),
    "tenant's client": composed.Attack("memory", "none", "itself", "memory", restart=False, seed=SEED),
    "stranger's client": composed.Attack("memory", "none", "itself", "client", restart=False, seed=SEED),
    "dead stranger's client": composed.Attack("memory", "none", "itself", "heir", restart=False, seed=SEED),
    "dying caller": composed.Attack("memory", "none", "mortal", "nobody", restart=False, seed=SEED),
    "stranger's contexts": composed.Attack("memory", "none", "itself", "contexts", restart=False, seed=SEED),
}


@pytest.mark.parametrize("kind", KINDS)
def test_attack_of_each_kind_is_ended(private_host: None, built: Programs, kind: str) -> None:
    if KINDS[kind].passing == "mortal" and not composed.CAN_STAND_IN:
        pytest.skip("a process of the same number cannot stand in for the killed one with a sanitizer")
    with composed.laid(built) as siege:
        assert composed.found_by(siege, KINDS[kind]) is None


@pytest.mark.parametrize(
    "seconds",
    [SECONDS, pytest.param(HOURS_S, marks=[pytest.mark.soak, pytest.mark.timeout(HOURS_S + 600)])],
)
def test_no_composed_attack_has_memory_that_nobody_pays_for(
    private_host: None, built: Programs, seconds: float
) -> None:
    seed = int(os.environ.get("MGPU_ATTACK_SEED", random.randrange(1 << 32)))
    tried, found = composed.attacked(built, seconds, seed)
    print(f"{tried} attacks with MGPU_ATTACK_SEED={seed}")
    assert tried > 0
    assert not found, f"MGPU_ATTACK_SEED={seed}\n" + "\n".join(found)
