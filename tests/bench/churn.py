"""How long requests of each kind wait in a cluster where pods come and end.

The production list's requests that ran for an hour or more come at random times, each for as long as it ran
there, so many that LOAD of all GPUs is asked for at any time. (The others are four in five, and have 1.8 % of
the GPUs' time.) A request that finds no room waits. Whenever a pod ends, all waiting requests try again in
the order in which they came, as the stock scheduler has them. On every 32nd of the list's nodes, for
MGPU_CHURN_DAYS days, a year unless given, of which the first fifth is not counted.
"""

import csv
import heapq
import os
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from cluster.scheduler.scheduler import Scoring
from tests.bench.grid import judge
from tests.bench.rows import Row, quantile
from tests.bench.traces import FOLDER
from tests.bench.traces_policy import Policy

DAYS, EVERY, LOAD, SEED = int(os.environ.get("MGPU_CHURN_DAYS", "365")), 32, 0.9, 42
DAY_S, HOUR_S, UNCOUNTED = 86_400, 3600, 0.2
LEAST_S = HOUR_S
LIST = FOLDER / "openb_pod_list_default.csv"
KINDS = ("no GPU", "part of a GPU", "one GPU", "2 or 4 GPUs", "8 GPUs")
SCORINGS: tuple[Scoring, ...] = ("fgd", "binpack")

Json = dict[str, Any]


class Asked(NamedTuple):
    at_s: float
    for_s: float
    request: Json

    @property
    def kind(self) -> str:
        count = self.request["num_gpu"]
        if count == 1:
            return KINDS[1 + (self.request["gpu_milli"] == 1000)]
        return KINDS[0] if not count else KINDS[3 + (count == 8)]

    @property
    def like(self) -> tuple[Any, ...]:
        """Two that are alike fit in the same places."""
        return tuple(value for name, value in self.request.items() if name != "id")


class Decides(Protocol):
    def place(self, asked: Json) -> Json: ...
    def end(self, uid: str) -> None: ...


class FirstFit:
    """The first node, and there the fullest GPUs."""

    def __init__(self, ledger: Any) -> None:
        self._ledger = ledger

    def place(self, asked: Json) -> Json:
        node = next((name for name in self._ledger.nodes if self._ledger.fits(asked, name)), None)
        if node is None:
            return {"node": None, "gpus": []}
        used = self._ledger.gpu[node]
        fitting = [gpu for gpu, milli in enumerate(used) if milli + asked["gpu_milli"] <= 1000]
        return {"node": node, "gpus": sorted(fitting, key=lambda gpu: -used[gpu])[: asked["num_gpu"]]}

    def end(self, uid: str) -> None:
        pass


def arrivals(gpus: int) -> Iterator[Asked]:
    drawn = random.Random(SEED)
    with open(LIST, newline="") as file:
        times = [(row["scheduled_time"], row["deletion_time"]) for row in csv.DictReader(file)]
    listed = [
        (one, int(end) - int(begin))
        for one, (begin, end) in zip(judge().load_pods(LIST), times, strict=True)
        if begin and end and int(end) - int(begin) >= LEAST_S
    ]
    mean_gpu_s = sum(one["num_gpu"] * one["gpu_milli"] * ran_s for one, ran_s in listed) / 1000 / len(listed)
    at_s, number = 0.0, 0
    while (at_s := at_s + drawn.expovariate(LOAD * gpus / mean_gpu_s)) < DAYS * DAY_S:
        one, ran_s = drawn.choice(listed)
        yield Asked(at_s, ran_s, {**one, "id": f"{one['id']}-{number}"})
        number += 1


def take_off(ledger: Any, request: Json, node: str, gpus: list[int]) -> None:
    ledger.cpu[node] -= request["cpu_milli"]
    ledger.mem[node] -= request["memory_mib"]
    for gpu in gpus:
        ledger.gpu[node][gpu] -= request["gpu_milli"]


class Cluster:
    """waits_s: by kind, of each that was placed or still waits at the end."""

    def __init__(self, ledger: Any, policy: Decides, counted_from_s: float = 0) -> None:
        self.waits_s: dict[str, list[float]] = {kind: [] for kind in KINDS}
        self._ledger, self._policy, self._counted_from_s = ledger, policy, counted_from_s
        self._waiting: list[Asked] = []
        self._ends: list[tuple[float, str, Json, str, list[int]]] = []

    def play(self, comes: Iterable[Asked], until_s: float) -> None:
        for one in comes:
            self._until(one.at_s)
            if not self._start(one, one.at_s):
                self._waiting.append(one)
        self._until(until_s)
        for one in self._waiting:
            self._waited(one, until_s)

    def _until(self, now_s: float) -> None:
        while self._ends and self._ends[0][0] <= now_s:
            at_s, uid, request, node, gpus = heapq.heappop(self._ends)
            take_off(self._ledger, request, node, gpus)
            self._policy.end(uid)
            self._try_all(at_s)

    def _try_all(self, now_s: float) -> None:
        refused: set[tuple[Any, ...]] = set()
        still = []
        for one in self._waiting:
            if one.like in refused or not self._start(one, now_s):
                refused.add(one.like)
                still.append(one)
        self._waiting = still

    def _start(self, one: Asked, now_s: float) -> bool:
        found = self._policy.place(one.request)
        if found["node"] is None:
            return False
        self._ledger.place(one.request, found["node"], found["gpus"])
        end = (now_s + one.for_s, one.request["id"], one.request, found["node"], found["gpus"])
        heapq.heappush(self._ends, end)
        self._waited(one, now_s)
        return True

    def _waited(self, one: Asked, until_s: float) -> None:
        if one.at_s >= self._counted_from_s:
            self.waits_s[one.kind].append(until_s - one.at_s)


def waits_s(nodes: Sequence[Json], scoring: Scoring | None) -> dict[str, list[float]]:
    """None: first fit."""
    ledger = judge().Ledger(nodes)
    policy = Policy(list(nodes), scoring) if scoring else FirstFit(ledger)
    cluster = Cluster(ledger, policy, UNCOUNTED * DAYS * DAY_S)
    cluster.play(arrivals(sum(node["num_gpu"] for node in nodes)), DAYS * DAY_S)
    return cluster.waits_s


def measure() -> Iterator[Row]:
    if not LIST.exists():
        return
    nodes = judge().load_nodes(FOLDER / "openb_node_list_gpu_node.csv")[::EVERY]
    plain = waits_s(nodes, None)
    for scoring in SCORINGS:
        found = waits_s(nodes, scoring)
        for kind in KINDS[1:]:
            for words, share in (("median", 0.5), ("99 %", 0.99)):
                hours, baseline = (quantile(each[kind], share) / HOUR_S for each in (found, plain))
                name = f"{DAYS} days, {scoring}, first fit: wait for {kind}, {words}"
                yield Row(name=name, value=hours, unit="h", baseline=baseline)


if __name__ == "__main__":
    from tests.bench import rows

    rows.show(measure())
