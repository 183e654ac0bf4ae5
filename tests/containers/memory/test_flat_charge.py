"""A charge that is flat does not grow: what a program makes and ends a hundred times costs at the end what it
did after the first, by the ledger, by the card and by what the program sees free.
"""

import pytest

from tests.support import arbiter
from tests.support.arbiter import Arbiter
from tests.support.programs import Programs
from tests.support.waiting import until

CAP_MIB = 4096
TIMES = 100


@pytest.mark.parametrize("what", ["managed", "context", "export"])
def test_charge_after_a_hundred_is_that_after_the_first(mgpu: Arbiter, built: Programs, what: str) -> None:
    """A managed range is a quarter of the cap: the fifth would be refused if one were left over."""
    env = {"MGPU_MEMORY_MIB": str(CAP_MIB)}
    with built.bundle("again", what, env=env) as made, made.running(mgpu.runtime) as running:
        seen = []
        for times in (1, TIMES):
            running.tell(str(times))
            free_mib = int(running.line())
            on_card = [card.used_bytes for card in mgpu.account().cards]
            until(lambda: managed_has_ended(mgpu), "managed memory is given back")
            seen.append((free_mib, mgpu.used_bytes(), on_card))
        assert seen[0] == seen[1]
        assert running.end() == 0
    arbiter.until_empty(mgpu)


def managed_has_ended(mgpu: Arbiter) -> bool:
    """What munmap() gives back is seen by the next look at the process."""
    return mgpu.used_bytes() == [card.used_bytes for card in mgpu.account().cards]
