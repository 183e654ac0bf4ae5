"""The scheduler extender over HTTP on loopback, as kube-scheduler calls it: filter with the names of all
nodes, prioritize with those that are left, bind.

The nodes and the requests are those of the trace (traces.py); without it there are no rows. The API server is
the tests' own, in this process: what a Binding costs it is measured in turns with the pods, with Bindings of
other pods sent straight to it, and taken off.
"""

from __future__ import annotations

import asyncio
import csv
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import aiohttp

from tests.bench.idle import rss_mib
from tests.bench.rows import Row, quantile
from tests.bench.traces import FOLDER
from tests.cluster import api_server
from tests.cluster.api_server import ApiServer
from tests.cluster.extender_support import NODES, PODS, Extender, Object, node, until

CARD_MIB = 16_160
# Of one end of the trace; of the larger cluster.
PART, LARGER, LARGER_PODS = 500, 4, 300


def measure() -> list[Row]:
    if not (FOLDER / "evaluate.py").exists():
        return []
    return asyncio.run(_measure())


async def _measure() -> list[Row]:
    shapes = _shapes()
    asks = list(_asks())
    async with _extender(shapes) as run:
        alone = await run.place(asks)
        rss = rss_mib(run.process.pid)
    async with _extender(shapes * LARGER) as run:
        larger = await run.place(asks[:LARGER_PODS])
        larger_rss = rss_mib(run.process.pid)
    first, last = alone[:PART], alone[-PART:]
    at = f"extender, {len(shapes):,} nodes, {len(asks):,} pods"
    return [
        Row(name=f"{at}: filter + prioritize + bind, p50", value=quantile(alone, 0.5), unit="ms", target=3),
        Row(name="the same, p99", value=quantile(alone, 0.99), unit="ms", target=10),
        Row(
            name=f"the same, p50 of the last {PART} pods beside the first",
            value=median(last),
            unit="ms",
            baseline=median(first),
        ),
        Row(
            name=f"extender, {len(shapes) * LARGER:,} nodes: p50 of {LARGER_PODS} pods beside {len(shapes):,} nodes",
            value=median(larger),
            unit="ms",
            baseline=median(alone[:LARGER_PODS]),
        ),
        Row(name=f"{at}: resident memory", value=rss, unit="MiB", target=150),
        Row(
            name=f"extender, {len(shapes) * LARGER:,} nodes: resident memory beside {len(shapes):,} nodes",
            value=larger_rss,
            unit="MiB",
            baseline=rss,
        ),
    ]


def _shapes() -> list[tuple[int, str]]:
    """Cards and model of each node."""
    with (FOLDER / "openb_node_list_gpu_node.csv").open() as file:
        return [(int(row["gpu"]), row["model"]) for row in csv.DictReader(file)]


def _asks() -> Iterator[Object]:
    """Limits of the pods that ask for GPUs, in order of arrival."""
    with (FOLDER / "openb_pod_list_default.csv").open() as file:
        for row in csv.DictReader(file):
            cards, milli = int(row["num_gpu"]), int(row["gpu_milli"])
            if cards and milli == 1000:
                yield {"mgpu.dev/gpus": str(cards)}
            elif cards:
                yield {"mgpu.dev/core": str(max(1, milli // 10))}


class _Run:
    def __init__(
        self,
        process: subprocess.Popen[bytes],
        extender: Extender,
        api: ApiServer,
        session: aiohttp.ClientSession,
    ) -> None:
        self.process = process
        self._extender = extender
        self._api = api
        self._session = session
        self._numbers = count()
        self._names = [value["metadata"]["name"] for value in api.all(NODES)]

    async def place(self, asks: Sequence[Object]) -> list[float]:
        """ms of each pod that found a place, the API server's part taken off."""
        took, writes = [], []
        for limits in asks:
            number = next(self._numbers)
            value = self._made(f"pod-{number}", limits)
            begun = time.perf_counter()
            chosen = (await self._extender.filter(value, *self._names))["NodeNames"]
            if not chosen:
                continue
            args = {"Pod": value, "Nodes": None, "NodeNames": chosen}
            scores = {one["Host"]: one["Score"] for one in await self._extender.call("prioritize", args)}
            error = await self._bind(value, max(chosen, key=lambda name: scores.get(name, 0)))
            if error:
                raise RuntimeError(error)
            took.append((time.perf_counter() - begun) * 1000)
            writes.append(await self._written(f"plain-{number}"))
        write = median(writes)
        return [each - write for each in took]

    def _made(self, name: str, limits: Object) -> Object:
        return self._api.put(
            PODS,
            {
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]},
                "status": {"phase": "Pending"},
            },
        )

    async def _bind(self, value: Object, name: str) -> str:
        """Asked again until the extender's watch has brought the pod, as the stock scheduler's own pause
        between its informer and a binding does; the waiting is a part of what is measured.
        """
        async with asyncio.timeout(10):
            while True:
                error = await self._extender.bind(value, name)
                if "it is gone" not in error:
                    return error

    async def _written(self, name: str) -> float:
        """ms that a Binding of another pod, without GPUs, takes the API server."""
        self._made(name, {})
        binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": self._names[0]}}
        begun = time.perf_counter()
        async with self._session.post(f"{self._api.url}{PODS}/{name}/binding", json=binding) as response:
            assert response.status == 201, await response.text()
            await response.read()
        return (time.perf_counter() - begun) * 1000


@asynccontextmanager
async def _extender(shapes: Sequence[tuple[int, str]]) -> AsyncGenerator[_Run]:
    """mgpu-scheduler as a process, which knows all nodes."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with TemporaryDirectory() as folder, api_server.running() as api:
        for number, (cards, model) in enumerate(shapes):
            api.put(NODES, node(f"node-{number:04}", *[CARD_MIB] * cards, model=model))
        argv = [
            *(sys.executable, "-m", "cluster.scheduler.main"),
            *("--listen", f"127.0.0.1:{port}"),
            *("--kubeconfig", str(api.kubeconfig(Path(folder)))),
        ]
        async with aiohttp.ClientSession() as session:
            with subprocess.Popen(argv) as process:
                try:
                    made = Extender(session, f"http://127.0.0.1:{port}", api)
                    await until(lambda: _ready(made), bool, seconds=30)
                    yield _Run(process, made, api, session)
                finally:
                    process.terminate()


async def _ready(extender: Extender) -> bool:
    try:
        return (await extender.get("/readyz"))[0] == 200
    except aiohttp.ClientError:
        return False


if __name__ == "__main__":
    from tests.bench import rows

    rows.show(asyncio.run(_measure()))
