"""A node process between a mgpud, a kubelet's protocol and an API server in memory."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tests.cluster import api_server
from tests.cluster.api_server import ApiServer
from tests.cluster.kubelet import FakeKubelet
from tests.support.arbiter import Arbiter

CORE = "mgpu.dev/core"
_T = TypeVar("_T")


class Kubelet:
    """A FakeKubelet in a thread of its own."""

    def __init__(self, folder: Path) -> None:
        self.fake = FakeKubelet(folder)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def does(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def close(self) -> None:
        self.does(self.fake.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@dataclass
class World:
    mgpu: Arbiter
    kubelet: Kubelet
    api: ApiServer
    process: subprocess.Popen[bytes]
    log: Path
    port: int

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines()

    def node(self) -> dict[str, Any]:
        return self.api.there("/api/v1/nodes/n1")

    def offered(self) -> bool:
        return self.kubelet.fake.allocatable(CORE) == 200


@contextmanager
def running(
    mgpu: Arbiter,
    folder: Path,
    labels: dict[str, str] | None = None,
    *options: str,
    told: dict[str, Any] | None = None,
) -> Iterator[World]:
    kubelet = Kubelet(folder)
    kubelet.does(kubelet.fake.start())
    log, port = folder / "node.log", 20000 + os.getpid() % 20000
    with api_server.running() as api, log.open("wb") as out:
        api.put(
            "/api/v1/nodes",
            {
                "metadata": {"name": "n1", "labels": labels or {}},
                "status": {"capacity": {"cpu": "2"}} | (told or {}),
            },
        )
        argv: list[str | Path] = [
            sys.executable,
            "-m",
            "cluster.node",
            "--node-name",
            "n1",
            "--root",
            mgpu.root,
        ]
        argv += ["--kubelet", folder, "--kubeconfig", api.kubeconfig(folder)]
        argv += ["--healthz", f"127.0.0.1:{port}"]
        argv += options
        process = subprocess.Popen(argv, stderr=out, stdout=out)
        try:
            yield World(mgpu, kubelet, api, process, log, port)
        finally:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            status = process.wait(10)
            kubelet.close()
        assert status == 0, log.read_text()
