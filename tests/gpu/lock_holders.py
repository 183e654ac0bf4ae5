"""How long a suspend takes while others hold RM's locks: programs that start, with a whole processor and with
a tenth of one, and programs that start on another card.
"""

import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.gpu.backend import Backend
from tests.gpu.experiments import BACK_TO_BACK, paced
from tests.gpu.results import Result, Results, quantiles
from tests.gpu.stage import CannotSayError
from tests.gpu.supervise import Supervised
from tests.gpu.tenants import Target, working

STARTS = 10_000
PERIOD_US, TENTH_US = 100_000, 10_000
CGROUPS = Path("/sys/fs/cgroup")
MEANS = "disable"
LEAVE_S = 2.0


def beside_starts(backend: Backend, results: Results, out: Result) -> None:
    starts = [backend.program("cuda_start"), str(STARTS)]
    with working(backend, *BACK_TO_BACK) as (_, target):
        if not target:
            out.verdict = "no handles"
            return
        out.figures["alone"] = suspends(target, backend)
        with Supervised(backend, starts):
            out.figures["beside_starts"] = suspends(target, backend)
        try:
            with a_tenth() as limit, Supervised(backend, starts) as program:
                limit(program.process.pid)
                out.figures["beside_throttled_starts"] = suspends(target, backend)
        except CannotSayError as error:
            out.figures["beside_throttled_starts"] = f"not tried: {error}"
        if backend.cards() > 1:
            with Supervised(backend, starts, env={"CUDA_VISIBLE_DEVICES": "1"}):
                out.figures["beside_starts_on_another_card"] = suspends(target, backend)
        else:
            out.figures["beside_starts_on_another_card"] = "not tried: there is one card"
    out.verdict = "measured"


def suspends(target: Target, backend: Backend) -> dict[str, float | int]:
    """Of a loop of them, what one took, in us; and how many were refused."""
    took, refused = [], 0
    end = time.monotonic() + paced(backend, 5)
    while time.monotonic() < end:
        for on in (False, True):
            status, us = target.run(MEANS, on)
            refused += status != 0
            if not on:
                took.append(us)
        time.sleep(0.005)
    return {**quantiles(took), "refused": refused}


@contextmanager
def a_tenth(root: Path = CGROUPS) -> Iterator[Callable[[int], None]]:
    """What puts a process, with what it starts from then on, among those that have a tenth of one
    processor."""
    group, limits = _cpu_group(root)

    def limit(pid: int) -> None:
        (group / "cgroup.procs").write_text(str(pid))

    group.mkdir()
    try:
        for name, value in limits.items():
            (group / name).write_text(value)
        yield limit
    except OSError as error:
        raise CannotSayError(f"{group} cannot be limited: {error.strerror}") from error
    finally:
        _leave(group)


def _cpu_group(root: Path) -> tuple[Path, dict[str, str]]:
    name = f"mgpu-gpu-{secrets.token_hex(4)}"
    for old in (root / "cpu,cpuacct", root / "cpu"):
        if (old / "cpu.cfs_quota_us").exists() or (old / "cgroup.procs").exists():
            return old / name, {"cpu.cfs_period_us": str(PERIOD_US), "cpu.cfs_quota_us": str(TENTH_US)}
    for new in (root, root / "unified"):
        control = new / "cgroup.subtree_control"
        if control.exists() and "cpu" in control.read_text().split():
            return new / name, {"cpu.max": f"{TENTH_US} {PERIOD_US}"}
    raise CannotSayError(f"no cgroup below {root} can limit processors")


def _leave(group: Path) -> None:
    """Its programs have been killed; those that still end keep it for a moment."""
    end = time.monotonic() + LEAVE_S
    while group.is_dir():
        with suppress(OSError):
            os.rmdir(group)
        if time.monotonic() > end:
            return
        time.sleep(0.01)
