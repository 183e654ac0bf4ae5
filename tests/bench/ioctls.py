"""How long a mediated ioctl takes, seen by the tenant."""

import json
from statistics import median

from tests.bench.rows import Row
from tests.support.arbiter import Arbiter
from tests.support.commands import run
from tests.support.programs import Programs

CALLS = 40_000
RUNS = 5


# What is measured; beside each stands what the kernel takes for the same system calls (notify_floor.c).
KINDS = (
    ("answered", "mediated ioctl, two copies each way, card excluded", (12.0, 60.0)),
    ("refused", "allocation over the cap", (None, None)),
    ("view", "memory view, with the simulated card's round trip", (None, None)),
    ("alloc_free", "allocation and free, with the simulated card's", (None, None)),
)
QUANTILES = ("p50", "p99")

Figures = list[dict[str, dict[str, int]]]


def measure(mgpu: Arbiter, built: Programs) -> list[Row]:
    """Medians over some runs of each run's p50 and p99, in µs. The card's own time is in none of the target
    rows: "answered" calls are the arbiter's alone. Runs of both programs take turns.
    """
    tenant: Figures = []
    floor: Figures = []
    with built.bundle("rm_latency", str(CALLS), env={"MGPU_MEMORY_MIB": "1024"}) as made:
        for _ in range(RUNS):
            floor.append(json.loads(run(built.folder / "notify_floor", str(CALLS))))
            tenant.append(json.loads(made.output(mgpu.runtime)))

    def us(figures: Figures, kind: str, which: str) -> float:
        return float(median(figure[kind][f"{which}_ns"] for figure in figures)) / 1000

    rows = [
        Row(
            name="ioctl that is not ours, in a granted container, p50",
            value=us(tenant, "unrelated", "p50"),
            unit="us",
        ),
        Row(
            name="ioctl that is not ours and is caught beside ours, p50",
            value=us(tenant, "caught", "p50"),
            unit="us",
            baseline=us(floor, "empty", "p50"),
        ),
        Row(
            name="notified ioctl answered at once by an empty supervisor, p50",
            value=us(floor, "empty", "p50"),
            unit="us",
        ),
    ]
    for kind, what, limits in KINDS:
        for which, limit in zip(QUANTILES, limits, strict=True):
            rows.append(
                Row(
                    name=f"{what}, {which}",
                    value=us(tenant, kind, which),
                    unit="us",
                    baseline=us(floor, "calls", which),
                    target=limit,
                )
            )
    return rows
