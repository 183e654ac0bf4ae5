"""The extender's own decisions as a policy for traces of requests: JSON lines in, JSON lines out.

The protocol is that of the judge that plays the traces. Its nodes and requests become what the extender
knows: a GPU is a card, gpu_milli is tenths of a percent of its core, and the share of memory that core alone
brings. Sixteen containers a card are no limit there, so they are none here. What the stock scheduler filters
by before it asks an extender (CPU, memory, the card's model) is done here, plainly.
"""

import json
import sys
from typing import Any, get_args

import numpy as np

from cluster.resources.inventory import Card, Inventory, Rules
from cluster.scheduler.pods import Container, Pod
from cluster.scheduler.scheduler import Scheduler, Scoring
from oci_specs.request import Request

# Large enough that a percent of it is above mgpu's least memory.
CARD_MIB = 81_920
MILLI_PER_PERCENT = 10


def inventory(node: dict[str, Any]) -> Inventory:
    rules = Rules(policy="fixed-share", placement="default", max_containers_per_card=1_000_000)
    cards = (
        Card(
            index=index,
            minor=index,
            uuid=f"GPU-{node['name']}-{index}",
            model=node["model"],
            memory_mib=CARD_MIB,
        )
        for index in range(node["num_gpu"])
    )
    return Inventory(rules=rules, cards=tuple(cards))


def pod(asked: dict[str, Any]) -> Pod:
    count = asked["num_gpu"]
    containers: tuple[Container, ...] = ()
    if count:
        core = count * asked["gpu_milli"] // MILLI_PER_PERCENT
        request = Request(
            qos="online",
            policy=None,
            count=count,
            core_percent=None if asked["gpu_milli"] == 1000 else core,
            whole_cards=asked["gpu_milli"] == 1000,
        )
        containers = (Container(name="main", request=request),)
    spec = asked["gpu_spec"]
    return Pod(
        uid=asked["id"],
        name=asked["id"],
        cpu_milli=asked["cpu_milli"],
        memory_mib=asked["memory_mib"],
        containers=containers,
        models=frozenset(spec.split("|")) if spec else None,
    )


class Policy:
    def __init__(self, nodes: list[dict[str, Any]], scoring: Scoring) -> None:
        self.scheduler = Scheduler(scoring)
        self.names = [node["name"] for node in nodes]
        self._row = {name: row for row, name in enumerate(self.names)}
        self._cpu = np.array([node["cpu_milli"] for node in nodes])
        self._memory = np.array([node["memory_mib"] for node in nodes])
        self._model = np.array([node["model"] for node in nodes])
        self._placed: dict[str, tuple[int, Pod]] = {}
        self._waiting: set[str] = set()
        for node in nodes:
            self.scheduler.put_node(node["name"], inventory(node), node["cpu_milli"], node["memory_mib"])

    def place(self, asked: dict[str, Any]) -> dict[str, Any]:
        wanted = pod(asked)
        if wanted.uid not in self._waiting:
            self.scheduler.arrived(wanted)
        found = self.scheduler.filter(wanted, self._possible(wanted))
        if not found.fits:
            self._waiting.add(wanted.uid)
            return {"node": None, "gpus": []}
        name = max(self.scheduler.score(wanted, found.fits), key=lambda scored: scored[1])[0]
        placed = self.scheduler.choose(wanted, name)
        self.scheduler.put_pod(wanted, name, placed)
        row = self._row[name]
        self._cpu[row] -= wanted.cpu_milli
        self._memory[row] -= wanted.memory_mib
        self._placed[wanted.uid] = row, wanted
        self._waiting.discard(wanted.uid)
        uuids = placed.get("main", ())
        return {"node": name, "gpus": [int(uuid.rpartition("-")[2]) for uuid in uuids]}

    def end(self, uid: str) -> None:
        row, ended = self._placed.pop(uid)
        self._cpu[row] += ended.cpu_milli
        self._memory[row] += ended.memory_mib
        self.scheduler.ended(ended)
        self.scheduler.remove_pod(uid)

    def _possible(self, wanted: Pod) -> list[str]:
        """What the stock scheduler's own filters leave."""
        possible = (self._cpu >= wanted.cpu_milli) & (self._memory >= wanted.memory_mib)
        if wanted.models is not None:
            possible &= np.isin(self._model, list(wanted.models))
        return [self.names[row] for row in np.flatnonzero(possible).tolist()]


def main() -> None:
    scoring = next(known for known in get_args(Scoring) if known == (sys.argv[1:] or ["fgd"])[0])
    policy = Policy(json.loads(sys.stdin.readline())["nodes"], scoring)
    for line in sys.stdin:
        print(json.dumps(policy.place(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
