"""Sixty nodes with kubelets that only say what they run, a kube-scheduler that tries again, and trouble of
every kind in turn: what is promised in a cluster holds through all of it.
"""

import asyncio
import json
import random
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

from cluster.scheduler.lease import RENEW_SECONDS
from oci_specs.vocabulary import PLACEMENT
from tests.cluster.api_server import ApiServer, Trouble
from tests.cluster.extender_support import (
    NODES,
    PODS,
    Extender,
    Object,
    bindings,
    extender,
    node,
    pod,
    until,
)

CARD_MIB, CARDS, NODE_COUNT = 16_384, 4, 60
SIZES_MIB = (1024, 4096, 8192, 16_384)
ROUNDS, PODS_A_ROUND, ENDED = 2, 40, 0.3
TROUBLES = ("none", "restart", "api-away", "slow", "gap", "hang-up", "flap", "skew")


class Cluster:
    """waiting: pods without a node, oldest first. starts: of extenders. tried: bindings asked for."""

    def __init__(self, server: ApiServer, folder: Path, stack: AsyncExitStack) -> None:
        self.server = server
        self.waiting: dict[str, Object] = {}
        self.starts = self.tried = self.made = 0
        self._folder = folder
        self._stack = stack
        self._chance = random.Random(3)
        self._nodes = [node(f"n{number:02}", *[CARD_MIB] * CARDS) for number in range(NODE_COUNT)]
        self._away: set[str] = set()
        self.heartbeat()

    async def restart(self) -> None:
        await self._stack.aclose()
        self.asked: Extender = await self._stack.enter_async_context(extender(self.server, self._folder))
        self.starts += 1

    def heartbeat(self) -> None:
        """Each kubelet writes its node's status, whether or not anything changed."""
        for each in self._nodes:
            if each["metadata"]["name"] not in self._away:
                self.server.put(NODES, each)

    def flap(self) -> None:
        """Half of the nodes lose what mgpu-node says of them, and with it their place in a cycle."""
        for each in self._nodes[::2]:
            kept = {key: value for key, value in each["metadata"].items() if key != "annotations"}
            self.server.put(NODES, each | {"metadata": kept})
            self._away.add(each["metadata"]["name"])

    def come_back(self) -> None:
        self._away.clear()
        self.heartbeat()

    def ask(self, created: str | None) -> None:
        for _ in range(PODS_A_ROUND):
            name = f"p{self.made}"
            value = pod(name, self._chance.choice(SIZES_MIB))
            if created:
                value["metadata"]["creationTimestamp"] = created
            self.waiting[name] = self.server.put(PODS, value)
            self.made += 1

    async def schedule(self) -> None:
        """Each pod that waits once, as kube-scheduler goes through its queue."""
        names = [
            each["metadata"]["name"] for each in self._nodes if each["metadata"]["name"] not in self._away
        ]
        for name, value in list(self.waiting.items()):
            found = await self.asked.filter(value, *names)
            if found["Error"] or not found["NodeNames"]:
                continue
            self.tried += 1
            # An error may be of a binding that was made.
            await self.asked.bind(value, found["NodeNames"][0])
            there = self.server.get(f"{PODS}/{name}")
            if there is not None and there["spec"].get("nodeName"):
                del self.waiting[name]

    def count(self) -> None:
        """As kubelets and mgpuds see it: by the annotations of the pods on each node."""
        used: Counter[str] = Counter()
        for value in self.server.all(PODS):
            where = value["spec"].get("nodeName")
            if where is None:
                continue
            uuids = json.loads(value["metadata"]["annotations"][PLACEMENT])["main"]
            assert all(uuid.startswith(f"GPU-{where}-") for uuid in uuids)
            asked_mib = sum(
                int(mib) for mib in value["spec"]["containers"][0]["resources"]["limits"].values()
            )
            for uuid in uuids:
                used[uuid] += asked_mib // len(uuids)
        assert all(mib <= CARD_MIB for mib in used.values())

    def end_some(self) -> None:
        for value in self.server.all(PODS):
            if value["spec"].get("nodeName") and self._chance.random() < ENDED:
                self.server.remove(f"{PODS}/{value['metadata']['name']}")

    async def trouble(self, kind: str) -> None:
        match kind:
            case "restart":
                await self.restart()
            case "api-away":
                self.server.troubles.append(Trouble(lambda method, path: True, status=503, times=25))
            case "slow":
                self.server.troubles.append(
                    Trouble(lambda method, path: path.endswith("/binding"), delay_s=0.05, times=25)
                )
            case "gap":
                self.server.compact()
            case "hang-up":
                self.server.hang_up()
            case "flap":
                self.flap()


async def test_every_pod_gets_its_gpu_once_through_all_trouble(server: ApiServer, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        cluster = Cluster(server, tmp_path, stack)
        begun_s = time.monotonic()
        await cluster.restart()
        for kind in ROUNDS * TROUBLES:
            cluster.ask("2099-01-01T00:00:00Z" if kind == "skew" else None)
            await cluster.trouble(kind)
            async with asyncio.timeout(60):
                while cluster.waiting:
                    await cluster.schedule()
                    cluster.count()
                    cluster.heartbeat()
                    await asyncio.sleep(0.02)
            cluster.come_back()
            cluster.end_some()
        assert cluster.made == len(ROUNDS * TROUBLES) * PODS_A_ROUND
        # A write for each binding asked for, and the lease's: none for nodes or their heartbeats.
        assert bindings(server) <= cluster.tried
        others = sum(method != "GET" for method, _ in server.requests) - bindings(server)
        assert others <= 4 * cluster.starts + 25 + (time.monotonic() - begun_s) / RENEW_SECONDS


async def test_node_that_flaps_comes_back_with_the_pods_that_it_has(
    server: ApiServer, tmp_path: Path
) -> None:
    there = node("a", CARD_MIB)
    server.put(NODES, there)
    async with extender(server, tmp_path) as asked:
        assert await asked.schedule(server.put(PODS, pod("one", CARD_MIB - 1024)), "a") == "a"
        gone = {key: value for key, value in there["metadata"].items() if key != "annotations"}
        for _ in range(20):
            server.put(NODES, there | {"metadata": gone})
            server.put(NODES, there)
        # Room for this one shows that the node is known again.
        small = server.put(PODS, pod("small", 1024))
        await until(lambda: asked.filter(small, "a"), lambda found: found["NodeNames"] == ["a"])
        large = server.put(PODS, pod("large", 4096))
        assert not (await asked.filter(large, "a"))["NodeNames"]
        server.remove(f"{PODS}/one")
        await until(lambda: asked.filter(large, "a"), lambda found: found["NodeNames"] == ["a"])
