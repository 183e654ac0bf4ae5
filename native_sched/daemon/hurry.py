"""While containers wait for mgpud to serve again it goes before them on a busy machine, and not a moment longer."""

from __future__ import annotations

import os
from contextlib import suppress

NICE = -10


def begin() -> int:
    """Returns what to give to end(). Where mgpud may not do it, it starts as fast as it can."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, min(before, NICE))
    return before


def end(before: int) -> None:
    """Also for the threads that began meanwhile: what tenants have them do is not to go before anybody."""
    for thread in os.listdir("/proc/self/task"):
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, int(thread), before)
