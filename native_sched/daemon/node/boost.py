"""Raises mgpud's priority while containers wait for it to serve again, and no longer."""

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
    """Threads that began meanwhile are set back, too: work for tenants must not have a higher priority than
    others.
    """
    for thread in os.listdir("/proc/self/task"):
        with suppress(OSError):
            # Listeners' threads have put themselves below it.
            if os.getpriority(os.PRIO_PROCESS, int(thread)) < before:
                os.setpriority(os.PRIO_PROCESS, int(thread), before)
