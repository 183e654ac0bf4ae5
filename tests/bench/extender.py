"""The scheduler extender over HTTP on loopback, as kube-scheduler calls it: filter with the names of all
nodes, prioritize with those that are left, bind.

The nodes and the requests are those of the trace (traces.py); without it there are no rows. The API server is
the tests' own, in this process. What the extender waited for it, by its own metric, is taken off: the mean of
the writes from each pod.
"""

import csv
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any
from urllib.request import urlopen

from tests.bench.idle import rss_mib
from tests.bench.rows import Row, quantile
from tests.bench.traces import FOLDER
from tests.cluster import api_server
from tests.cluster.api_server import ApiServer
from tests.cluster.extender_support import NODES, PODS, Object, node
from tests.support.waiting import until

CARD_MIB = 16_160
# Of one end of the trace; of the larger cluster.
PART, LARGER, LARGER_PODS = 500, 4, 1000
QUEUED_S = 0.003
_WRITE = "mgpu_scheduler_write_seconds"


def measure() -> list[Row]:
    if not (FOLDER / "evaluate.py").exists():
        return []
    shapes = _shapes()
    asks = list(_asks())
    with running(_nodes(shapes)) as run:
        alone = run.place(asks)
        write_ms = run.write_ms
        rss = rss_mib(run.process.pid)
    with running(_nodes(shapes * LARGER)) as run:
        larger = run.place(asks[:LARGER_PODS])
        larger_rss = rss_mib(run.process.pid)
    first, last = alone[:PART], alone[-PART:]
    at = f"extender, {len(shapes):,} nodes, {len(asks):,} pods"
    return [
        Row(name=f"{at}: filter + prioritize + bind, p50", value=quantile(alone, 0.5), unit="ms", target=3),
        Row(name="the same, p99", value=quantile(alone, 0.99), unit="ms", target=10),
        Row(name="the API server's write, mean", value=write_ms, unit="ms"),
        Row(
            name=f"filter + prioritize + bind, p50 of the last {PART} pods beside the first",
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
        Row(
            name="the same, p99",
            value=quantile(larger, 0.99),
            unit="ms",
            baseline=quantile(alone[:LARGER_PODS], 0.99),
            target=10,
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


def _nodes(shapes: Sequence[tuple[int, str]]) -> Iterator[Object]:
    for number, (cards, model) in enumerate(shapes):
        yield node(f"node-{number:04}", *[CARD_MIB] * cards, model=model)


class Run:
    def __init__(self, process: subprocess.Popen[bytes], port: int, api: ApiServer) -> None:
        self.process = process
        self._api = api
        self._extender = HTTPConnection("127.0.0.1", port)
        self._port = port
        self.write_ms = 0.0
        self._names = [value["metadata"]["name"] for value in api.all(NODES)]
        self._numbers = count()

    def place(self, asks: Sequence[Object]) -> list[float]:
        """ms of each pod that found a place, the API server's writes taken off."""
        took = []
        seconds_before, writes_before = self._written()
        for limits in asks:
            number = next(self._numbers)
            value = self._made(f"pod-{number}", limits)
            # A pod is in the stock scheduler's queue while the watch brings it to the extender.
            time.sleep(QUEUED_S)
            pod_ms, chosen = self._asked("filter", {"Pod": value, "NodeNames": self._names})
            names = chosen["NodeNames"]
            if not names:
                continue
            scored_ms, scores = self._asked("prioritize", {"Pod": value, "NodeNames": names})
            meta = value["metadata"]
            binding = {
                "PodName": meta["name"],
                "PodNamespace": meta["namespace"],
                "PodUID": meta["uid"],
                "Node": max(scores, key=lambda one: one["Score"])["Host"],
            }
            bound_ms, bound = self._asked("bind", binding)
            if bound["Error"]:
                raise RuntimeError(bound["Error"])
            self._taken_in(meta["name"])
            took.append(pod_ms + scored_ms + bound_ms)
        seconds, writes = self._written()
        self.write_ms = 1000 * (seconds - seconds_before) / (writes - writes_before)
        return [each - self.write_ms for each in took]

    def _made(self, name: str, limits: Object) -> Object:
        return self._api.put(
            PODS,
            {
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]},
                "status": {"phase": "Pending"},
            },
        )

    def _taken_in(self, name: str) -> None:
        """As kubelet says it: without that the next pod is not sent to the node for seconds."""
        value = self._api.there(f"{PODS}/{name}")
        self._api.put(PODS, {**value, "status": {"phase": "Running"}})

    def _asked(self, verb: str, args: Object) -> tuple[float, Any]:
        took, status, answer = _posted(self._extender, f"/{verb}", args)
        if status != 200:
            raise RuntimeError(f"{verb}: {status} {answer}")
        return took, answer

    def _written(self) -> tuple[float, float]:
        """Seconds that the extender waited for the API server's writes, and how many there were."""
        with urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=10) as response:
            lines = [line.split() for line in response.read().decode().splitlines()]
        found = {line[0]: float(line[1]) for line in lines if line and line[0].startswith(_WRITE)}
        return found[f"{_WRITE}_sum"], found[f"{_WRITE}_count"]


def _posted(to: HTTPConnection, path: str, value: Object) -> tuple[float, int, Any]:
    """ms, status and answer; what the caller's JSON costs is not in it."""
    body = json.dumps(value).encode()
    begun = time.perf_counter()
    to.request("POST", path, body, {"Content-Type": "application/json"})
    with to.getresponse() as response:
        read = response.read()
    took = (time.perf_counter() - begun) * 1000
    return took, response.status, json.loads(read)


@contextmanager
def running(nodes: Iterable[Object], pods: Iterable[Object] = ()) -> Iterator[Run]:
    """mgpu-scheduler as a process, which knows all nodes, and pods."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with TemporaryDirectory() as folder, api_server.running() as api:
        for value in nodes:
            api.put(NODES, value)
        for value in pods:
            api.put(PODS, value)
        argv = [
            *(sys.executable, "-m", "cluster.scheduler.main"),
            *("--listen", f"127.0.0.1:{port}"),
            *("--kubeconfig", str(api.kubeconfig(Path(folder)))),
        ]
        with subprocess.Popen(argv) as process:
            try:
                until(lambda: _is_ready(port), "the extender is ready", timeout_s=300)
                yield Run(process, port, api)
            finally:
                process.terminate()


def _is_ready(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10) as response:
            return bool(response.status == 200)
    except OSError:
        return False


if __name__ == "__main__":
    from tests.bench import rows

    rows.show(measure())
