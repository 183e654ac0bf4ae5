"""A node's metrics over an engine that only remembers, for any number of containers."""

import asyncio
import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from native_sched.daemon.control.health import Watchdog
from native_sched.daemon.engine import Engine
from native_sched.daemon.engine_abi import Pulse, Refused, SchedState, Stats, Usage
from native_sched.daemon.grants.card_policies import CardPolicies
from native_sched.daemon.grants.grants import Grant, Grants
from native_sched.daemon.log import Log
from native_sched.daemon.metrics import text as metrics
from native_sched.daemon.metrics.account import Account
from native_sched.daemon.metrics.refused import Refusals
from native_sched.daemon.metrics.service import Observed
from native_sched.daemon.node.inventory import CardInfo
from native_sched.daemon.reclaim.counts import Counts
from oci_specs.request import Identity
from placement.cards import CardShare

MIB = 1 << 20
S = 1_000_000_000
BOUNDS_NS = (50_000, 100_000, 200_000, 300_000, 500_000, 1_000_000, 2_000_000, 5_000_000, 10_000_000)
METRIC = re.compile(r"\b((?:mgpu|process)_[a-z_]+)\b")


class CountingEngine:
    """What the engine counts, set by the test."""

    def __init__(self) -> None:
        self.driver_alive = True
        self.realtime = True
        self.latency_bounds_ns = BOUNDS_NS
        self.parked_bounds_ns = tuple(1000 * bound for bound in BOUNDS_NS)
        self.counts = Stats()
        self.beats = 0
        self.turns_alone = True
        self.serving_ns = 0
        self.used_bytes: dict[tuple[int, int], int] = {}
        self.caps: dict[tuple[int, int], int] = {}
        self.states: dict[int, SchedState] = {}
        self.refusals: dict[int, list[int]] = {}

    def stats(self) -> Stats:
        return self.counts

    def pulse(self) -> Pulse:
        self.beats += self.turns_alone
        return Pulse(turns=self.beats, serving_ns=self.serving_ns)

    def refused(self, tenant: int) -> tuple[int, ...]:
        return tuple(self.refusals.get(tenant, [0] * len(Refused)))

    def usage(self, tenant: int, card: int) -> Usage:
        return Usage(cap_bytes=self.caps[tenant, card], used_bytes=self.used_bytes.get((tenant, card), 0))

    def sched(self, tenant: int) -> SchedState:
        if tenant not in self.states:
            raise OSError(errno.ENOENT, "No such file or directory")
        return self.states[tenant]


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Node:
    """A node with cards of 16160 MiB."""

    def __init__(self, cards: int, log_fd: int) -> None:
        self.engine = CountingEngine()
        self.grants = Grants()
        self.clock = Clock()
        self.log = Log(log_fd, clock=self.clock)
        self.cards = [
            CardInfo(index=i, minor=i, uuid=f"GPU-{i:04}", name="Tesla V100", memory_mib=16160, gpu_id=i)
            for i in range(cards)
        ]
        engine = cast(Engine, self.engine)
        self.loop = asyncio.new_event_loop()
        self.account = Account(engine, self.clock)
        self.ticks = 0
        self.watchdog = Watchdog(engine, self.loop, self._tick, self.log)
        self.refusals = Refusals(self.log)
        self.moved = Counts()
        self.render = metrics.renderer(
            Observed(
                engine=engine,
                grants=self.grants,
                policies=CardPolicies(self.grants),
                cards=self.cards,
                account=self.account,
                watchdog=self.watchdog,
                refusals=self.refusals,
                driver="sim",
                driver_version="545.1",
                moved=self.moved,
                log=self.log,
            )
        )

    def _tick(self) -> None:
        self.ticks += 1
        self.account.tick(self.grants)

    def pass_s(self, seconds: float) -> None:
        """Time goes by, with a look of the watchdog's every two seconds."""
        for _ in range(round(seconds / 2)):
            self.clock.now_s += 2
            self.watchdog.look()
            self.loop.run_until_complete(asyncio.sleep(0))

    def add(self, container_id: str, *cards: int, **changed: Any) -> Grant:
        tenant, nonce = self.grants.name()
        grant = Grant(
            **{
                "tenant": tenant,
                "nonce": nonce,
                "container_id": container_id,
                "rootfs": "/r",
                "identity": Identity(pod="web-0", namespace="prod", container="app"),
                "qos": "online",
                "policy": "fixed-share",
                "advisory": False,
                "cards": tuple(
                    CardShare(
                        index=i,
                        minor=i,
                        uuid=f"GPU-{i:04}",
                        name="Tesla V100",
                        memory_mib=1024,
                        core_percent=None,
                    )
                    for i in cards
                ),
                "edits": {},
                "state": "bound",
                **changed,
            }
        )
        self.grants.add(grant)
        for card in cards:
            self.engine.caps[tenant, card] = 1024 * MIB
        self.engine.states[tenant] = SchedState(enabled=1)
        return grant

    def text(self, *, openmetrics: bool = False) -> str:
        return self.render(openmetrics)[0].decode()

    def families(self) -> dict[str, Metric]:
        return {family.name: family for family in text_string_to_metric_families(self.text())}

    def samples(self, name: str) -> dict[frozenset[tuple[str, str]], float]:
        """By labels. AssertionError when a series comes twice."""
        found: dict[frozenset[tuple[str, str]], float] = {}
        for family in self.families().values():
            for sample in family.samples:
                if sample.name == name:
                    key = frozenset(sample.labels.items())
                    assert key not in found, f"{name} {sample.labels} comes twice"
                    found[key] = sample.value
        return found

    def one(self, name: str, **labels: str) -> float:
        """The one sample that has these labels among its own."""
        wanted = set(labels.items())
        [found] = [number for key, number in self.samples(name).items() if wanted <= key]
        return found


@contextmanager
def node(cards: int = 2) -> Iterator[Node]:
    read, write = os.pipe()
    try:
        made = Node(cards, write)
        yield made
        made.loop.close()
    finally:
        os.close(read)
        os.close(write)


def exported_labels() -> dict[str, set[str]]:
    """Labels by sample name, of a node with one container."""
    with node() as world:
        world.add("c1", 0)
        found: dict[str, set[str]] = {}
        for family in world.families().values():
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
        return found
