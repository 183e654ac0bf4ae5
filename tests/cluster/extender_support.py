"""An extender over HTTP against the API server in memory, and the objects that both are told of."""

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from cluster.api.client import Client
from cluster.resources.inventory import ANNOTATION, Card, Inventory, Rules
from cluster.scheduler.main import Options, serve
from oci_specs.vocabulary import PLACEMENT
from tests.cluster.api_server import ApiServer

Object = dict[str, Any]
NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
MEMORY = "vke.volcengine.com/mgpu-memory"
CORE = "vke.volcengine.com/mgpu-core"


class Extender:
    """What kube-scheduler does with one: posts ExtenderArgs and the like."""

    def __init__(self, session: aiohttp.ClientSession, url: str, server: ApiServer) -> None:
        self._session = session
        self._url = url
        self._server = server

    async def call(self, verb: str, args: Object) -> Any:
        async with self._session.post(f"{self._url}/{verb}", json=args) as response:
            assert response.status == 200, await response.text()
            return await response.json()

    async def get(self, path: str) -> tuple[int, str]:
        async with self._session.get(self._url + path) as response:
            return response.status, await response.text()

    async def filter(self, pod: Object, *names: str) -> Object:
        found: Object = await self.call("filter", {"Pod": pod, "Nodes": None, "NodeNames": list(names)})
        return found

    async def bind(self, pod: Object, node: str) -> str:
        meta = pod["metadata"]
        args = {
            "PodName": meta["name"],
            "PodNamespace": meta["namespace"],
            "PodUID": meta["uid"],
            "Node": node,
        }
        found: str = (await self.call("bind", args))["Error"]
        return found

    async def schedule(self, pod: Object, *names: str) -> str:
        """Filter and bind, as one cycle of kube-scheduler; the node, or "" where there is none."""
        found = await self.filter(pod, *names)
        assert not found["Error"], found["Error"]
        if not found["NodeNames"]:
            return ""
        node: str = found["NodeNames"][0]
        error = await self.bind(pod, node)
        assert not error, error
        return node


@asynccontextmanager
async def extender(
    server: ApiServer, folder: Path, *, ready: bool = True, **options: Any
) -> AsyncGenerator[Extender]:
    chosen = {
        "listen": "127.0.0.1:0",
        "healthz": None,
        "namespace": "mgpu-system",
        "score": "fgd",
        "reserve_after_s": 60.0,
        "reserve_for_s": 600.0,
        # No kubelet is here to answer.
        "answer_s": 0.0,
        **options,
    }
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    async with Client(str(server.kubeconfig(folder))) as api, aiohttp.ClientSession() as session:
        task = asyncio.ensure_future(serve(api, Options(**chosen), port.set_result))
        try:
            waits: set[asyncio.Future[Any]] = {task, port}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
            made = Extender(session, f"http://127.0.0.1:{port.result()}", server)
            if ready:
                await until(lambda: made.get("/readyz"), lambda answer: answer[0] == 200)
            yield made
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def until(ask: Callable[[], Any], fine: Callable[[Any], bool], *, seconds: float = 10.0) -> Any:
    """Asks again until the answer is fine."""
    async with asyncio.timeout(seconds):
        while not fine(found := await ask()):
            await asyncio.sleep(0.02)
        return found


def node(name: str, *memory_mib: int, model: str = "V100", labels: Object | None = None) -> Object:
    """One card for each number."""
    cards = tuple(
        Card(index=index, uuid=f"GPU-{name}-{index}", minor=index, model=model, memory_mib=mib)
        for index, mib in enumerate(memory_mib)
    )
    rules = Rules(policy="fixed-share", placement="default", max_containers_per_card=16)
    return {
        "metadata": {
            "name": name,
            "labels": labels or {},
            "annotations": {ANNOTATION: Inventory(rules=rules, cards=cards).to_json()},
        },
        "spec": {},
        "status": {"allocatable": {"cpu": "64", "memory": "256Gi"}},
    }


def pod(name: str, memory_mib: int | None = None, core: int | None = None, **spec: Any) -> Object:
    limits = {key: str(value) for key, value in ((MEMORY, memory_mib), (CORE, core)) if value is not None}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": str(uuid.uuid4())},
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}], **spec},
        "status": {"phase": "Pending"},
    }


def placement(server: ApiServer, name: str) -> Object:
    """What the pod's annotation says; {} while it has none."""
    found = server.there(f"{PODS}/{name}")
    text = found["metadata"].get("annotations", {}).get(PLACEMENT, "{}")
    read: Object = json.loads(text)
    return read


def node_of(server: ApiServer, name: str) -> str | None:
    found = server.there(f"{PODS}/{name}")
    where: str | None = found["spec"].get("nodeName")
    return where


def bindings(server: ApiServer) -> int:
    """How many Binding requests came."""
    return sum(method == "POST" and path.endswith("/binding") for method, path in server.requests)
