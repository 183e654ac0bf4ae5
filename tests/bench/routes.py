"""What mgpu adds to a container's start on each engine, beside the plain runtime on the same engine."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from statistics import median
from typing import NamedTuple

from tests.bench import cpu_time
from tests.bench.cpu_time import CpuTime
from tests.bench.rows import Row
from tests.support import arbiter, cri, dockerd, podman
from tests.support.arbiter import Arbiter
from tests.support.programs import Programs
from tests.support.routes import CRUN, RUNC, Box, ByCri, ByCtr, ByDocker, ByPodman, Request, Route

STARTS = 15
TARGET_RATIO = 1.20
AT_ONCE = 20
TARGET_CPU_RATIO = 1.25
REQUEST: Request = {"memory-mib": "512"}


def measure(built: Programs) -> list[Row]:
    """Engines of its own, one after the other."""
    with cpu_time.counted() as cpu:
        return [row for name, route, mgpu in _routes(built) for row in _rows(name, route, mgpu, cpu)]


def _routes(built: Programs) -> Iterator[tuple[str, Route, Arbiter]]:
    with arbiter.running() as mgpu, arbiter.running(runtime=CRUN) as on_crun, ExitStack() as stack:
        with dockerd.running() as docker:
            yield "dockerd --runtime", ByDocker(docker, built), mgpu
        with cri.running() as kubelet:
            yield "ctr, shim", ByCtr(kubelet, built, shim=True), mgpu
            yield "ctr, --runc-binary", ByCtr(kubelet, built, shim=False), mgpu
            yield "CRI, shim", ByCri(kubelet, built, cri.BY_SHIM), mgpu
            yield "CRI, BinaryName", ByCri(kubelet, built, cri.BY_BINARY), mgpu
        pod = stack.enter_context(podman.running())
        yield "podman --runtime, runc", ByPodman(pod, built, RUNC), mgpu
        yield "podman --runtime, crun", ByPodman(pod, built, CRUN), on_crun
        yield "podman, precreate hook", ByPodman(pod, built, RUNC, hook=True), mgpu


def _started(route: Route, mgpu: Arbiter | None) -> Box:
    """Returns when the engine says that it runs."""
    return route.start(mgpu, REQUEST, "sleep", "600")


class Start(NamedTuple):
    """One, with nothing else under way. The processor's time is the engine's and mgpu's too."""

    took_ms: float
    cpu_ms: float


def _alone(route: Route, mgpu: Arbiter | None, cpu: CpuTime) -> Start:
    containers = route.engine.home.name
    before = cpu.used_ms(containers)
    begin = time.monotonic()
    box = _started(route, mgpu)
    start = Start((time.monotonic() - begin) * 1000, cpu.used_ms(containers) - before)
    box.remove()
    return start


def _together_cpu_ms(route: Route, mgpu: Arbiter | None, cpu: CpuTime) -> float:
    """Of each of many starts at once; the engine's own part in it and mgpu's daemons' are in."""
    # A first one, for what an engine or mgpud does once.
    _started(route, mgpu).remove()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        before = cpu.used_ms(route.engine.home.name)
        boxes = list(pool.map(lambda _: _started(route, mgpu), range(AT_ONCE)))
        took = cpu.used_ms(route.engine.home.name) - before
        list(pool.map(lambda box: box.remove(), boxes))
    return took / AT_ONCE


def _rows(name: str, route: Route, mgpu: Arbiter, cpu: CpuTime) -> list[Row]:
    plain, ours = [], []
    for _ in range(STARTS):
        plain.append(_alone(route, None, cpu))
        ours.append(_alone(route, mgpu, cpu))
    took, beside = (median(one.took_ms for one in starts) for starts in (ours, plain))
    used, used_beside = (median(one.cpu_ms for one in starts) for starts in (ours, plain))
    plain_cpu, ours_cpu = _together_cpu_ms(route, None, cpu), _together_cpu_ms(route, mgpu, cpu)
    return [
        *_over(f"start by {name}, p50", took, beside, TARGET_RATIO),
        *_over(f"CPU per start by {name}, alone", used, used_beside),
        *_over(f"CPU per start by {name}, {AT_ONCE} at once", ours_cpu, plain_cpu, TARGET_CPU_RATIO),
    ]


def _over(name: str, ours_ms: float, plain_ms: float, target: float | None = None) -> Iterator[Row]:
    yield Row(name=name, value=ours_ms, unit="ms", baseline=plain_ms)
    yield Row(name="the same, over its plain runtime", value=ours_ms / plain_ms, unit="x", target=target)
