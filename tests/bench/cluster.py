"""What the node process costs: its memory, and what a pod waits for it.

What kubelet itself does with as many ids is not in it; docs/cluster.md has a measurement of that.
"""

import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.idle import rss_mib
from tests.bench.rows import Row, quantile
from tests.cluster.node_process import running
from tests.support import arbiter
from tests.support.waiting import until

CARDS = "a100-80:8"
PODS = 100
LIMITS = {"mgpu.dev__memory-64mib": 64, "mgpu.dev__memory-spare-mib": 24, "mgpu.dev__core": 5}


def measure() -> list[Row]:
    """Beside a mgpud with eight GPUs of 80 GiB, and an API server."""
    took: list[float] = []
    with (
        arbiter.running(CARDS) as mgpu,
        TemporaryDirectory() as folder,
        running(mgpu, Path(folder)) as world,
    ):
        names = [name.replace("__", "/") for name in LIMITS]
        until(lambda: all(world.kubelet.fake.allocatable(name) for name in names), "all is offered")
        for number in range(PODS):
            began = time.perf_counter()
            world.kubelet.does(world.kubelet.fake.allocate(f"pod-{number}", **LIMITS))
            took.append((time.perf_counter() - began) * 1000)
            world.kubelet.fake.free(f"pod-{number}")
        rss = rss_mib(world.process.pid)
    return [
        Row(name="node process, 8 GPUs of 80 GiB: resident memory", value=rss, unit="MiB", target=80),
        Row(
            name="node process: its part of a pod's start, three resources, p50",
            value=quantile(took, 0.5),
            unit="ms",
            target=30,
        ),
        Row(name="the same, p99", value=quantile(took, 0.99), unit="ms"),
    ]
