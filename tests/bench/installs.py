"""How long it takes to point every engine of this machine at mgpu."""

import time
from pathlib import Path
from statistics import median

from tests.bench.rows import Row
from tests.support import host
from tests.support.commands import run
from tests.support.places import MGPU

TIMES = 5


def measure() -> list[Row]:
    """In an /etc of its own."""
    took = []
    with host.own(Path("/etc"), Path("/usr/local/bin")):
        for _ in range(TIMES):
            begin = time.monotonic()
            run(MGPU, "install", "all")
            took.append(time.monotonic() - begin)
            run(MGPU, "uninstall", "all")
    return [Row(name="mgpu install all, p50", value=median(took), unit="s", target=2)]
