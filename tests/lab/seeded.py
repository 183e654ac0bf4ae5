"""What breaks a guest, run in it by the laboratory's agent."""

from __future__ import annotations

import time
from pathlib import Path


def oops() -> None:
    Path("/proc/sysrq-trigger").write_text("c")


def hang() -> None:
    """Of which the agent's own limit is no end: nothing answers any more."""
    time.sleep(3600)
