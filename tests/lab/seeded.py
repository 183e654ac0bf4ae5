"""What breaks a guest, run in it by the laboratory's agent."""

from __future__ import annotations

from pathlib import Path


def oops() -> None:
    Path("/proc/sysrq-trigger").write_text("c")
