"""What breaks a guest or is left in it, run by the laboratory's agent."""

import os
import time
from pathlib import Path


def oops() -> None:
    Path("/proc/sysrq-trigger").write_text("c")


def orphan() -> None:
    """Returns once the guest's first process has waited for it."""
    read, write = os.pipe()
    if not (child := os.fork()):
        if not os.fork():
            os.write(write, b"%d" % os.getpid())
        os._exit(0)
    os.waitpid(child, 0)
    left = Path(f"/proc/{int(os.read(read, 16))}")
    while left.exists():
        time.sleep(0.02)
