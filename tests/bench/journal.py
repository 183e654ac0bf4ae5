"""What it costs a mediated ioctl that the next mgpud can go on with it."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from tests.bench.rows import Row
from tests.support import arbiter
from tests.support.arbiter import Arbiter
from tests.support.programs import Programs

CALLS = 20_000
RUNS = 7
LIMIT_US = 1.0
# Nothing of the first is kept but that it was taken up; what the second changes is written down before it is
# asked for.
KINDS = (
    ("answered", "journalled mediated ioctl that changes nothing, over an unjournalled one, p50"),
    ("refused", "journalled allocation over the cap, over an unjournalled one, p50"),
)


@contextmanager
def _without_journal() -> Iterator[Arbiter]:
    os.environ["MGPUD_WITHOUT_JOURNAL"] = "1"
    try:
        with arbiter.running() as found:
            yield found
    finally:
        del os.environ["MGPUD_WITHOUT_JOURNAL"]


def measure(mgpu: Arbiter, built: Programs) -> list[Row]:
    """Runs with a journal and without take turns; the median of the differences of neighbours."""
    extra: dict[str, list[float]] = {kind: [] for kind, _what in KINDS}
    plain: dict[str, list[float]] = {kind: [] for kind, _what in KINDS}
    with (
        _without_journal() as other,
        built.bundle("rm_latency", str(CALLS), env={"MGPU_MEMORY_MIB": "1024"}) as made,
    ):
        for _ in range(RUNS):
            with_journal, without = (json.loads(made.run(each.runtime).out) for each in (mgpu, other))
            for kind, figures in extra.items():
                plain[kind].append(without[kind]["p50_ns"] / 1000)
                figures.append(with_journal[kind]["p50_ns"] / 1000 - plain[kind][-1])
    return [
        Row(name=what, value=median(extra[kind]), unit="us", baseline=median(plain[kind]), target=LIMIT_US)
        for kind, what in KINDS
    ]
