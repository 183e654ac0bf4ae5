"""What mgpud costs while nothing happens."""

import time
from contextlib import ExitStack
from pathlib import Path

from tests.bench.rows import Row
from tests.bench.starts import TICKS_PER_S
from tests.support.arbiter import Arbiter
from tests.support.programs import Programs

CONTAINERS = 16
SECONDS = 20.0


def ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def rss_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmRSS")


def measure(mgpu: Arbiter, built: Programs) -> list[Row]:
    """With 16 containers that hold memory and sleep."""
    mgpud = mgpu.pid_of("mgpud")
    with ExitStack() as stack:
        for _ in range(CONTAINERS):
            made = stack.enter_context(built.bundle("hold", "100", env={"MGPU_MEMORY_MIB": "512"}))
            running = stack.enter_context(made.running(mgpu.runtime))
            assert running.line() == "held 0"
        assert len(mgpu.containers()) == CONTAINERS
        before = ticks(mgpud)
        time.sleep(SECONDS)
        busy = (ticks(mgpud) - before) / TICKS_PER_S / SECONDS * 100
        rss = rss_mib(mgpud)
    return [
        Row(name=f"mgpud, {CONTAINERS} idle containers: share of a core", value=busy, unit="%", target=0.5),
        Row(name=f"mgpud, {CONTAINERS} idle containers: resident memory", value=rss, unit="MiB", target=64),
    ]
