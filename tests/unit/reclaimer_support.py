"""A node whose reclaimer evicts and restores over a driver that refuses, stays silent or dies."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from native_sched.daemon.engine_abi import CardMemory, Process, SchedState, Why
from native_sched.daemon.grants.grants import Grant, Reclaim
from native_sched.daemon.node import process_id
from native_sched.daemon.node.config import NodeConfig
from native_sched.daemon.reclaim import host_memory, move
from native_sched.daemon.reclaim import reclaim as reclaiming
from native_sched.daemon.reclaim.checkpoint import Failed, Gone, Patience
from native_sched.daemon.reclaim.reclaim import Reclaimer
from tests.unit.arbiter_support import CARDS, FakeEngine, World

MIB = 1 << 20
TOTAL, HELD = CARDS[0].memory_mib * MIB, 64 * MIB
FIRST_PID = 100
WITHIN_S = 5.0
STEPS = {
    "lock": ("running", "locked"),
    "checkpoint": ("locked", "checkpointed"),
    "restore": ("checkpointed", "locked"),
    "unlock": ("locked", "running"),
}


@dataclass
class Driver:
    """By pid, the state of one process of each container. dies: so often mgpu-checkpoint ends instead of a
    step; waits: pids whose copies wait for ever.
    """

    states: dict[int, str] = field(default_factory=dict)
    alive: set[int] = field(default_factory=set)
    dies: int = 0
    refuses: str = ""
    waits: set[int] = field(default_factory=set)
    steps: list[tuple[str, int]] = field(default_factory=list)

    async def start(self) -> None:
        pass

    def close(self) -> None:
        pass

    async def state(self, pid: int) -> str:
        return self.states[pid]

    async def step(self, verb: str, pid: int) -> None:
        await asyncio.sleep(0)
        self.steps.append((verb, pid))
        before, after = STEPS[verb]
        if self.dies:
            self.dies -= 1
            raise Gone(f"mgpu-checkpoint does not answer {verb}")
        if self.states[pid] != before or verb == self.refuses:
            raise Failed(f"CUDA_ERROR_UNKNOWN at {verb}: unknown error")
        if pid in self.waits:
            await asyncio.Event().wait()
        self.states[pid] = after

    async def lock(self, pid: int, _timeout_ms: int) -> None:
        await self.step("lock", pid)

    async def checkpoint(self, pid: int, _patience: Patience) -> None:
        await self.step("checkpoint", pid)

    async def restore(self, pid: int, _patience: Patience, _pairs: Iterable[tuple[str, str]] = ()) -> None:
        await self.step("restore", pid)

    async def unlock(self, pid: int) -> None:
        await self.step("unlock", pid)


class LendingEngine(FakeEngine):
    """Each container has one process, whose memory is on its card unless it is checkpointed."""

    def __init__(self, driver: Driver) -> None:
        super().__init__()
        self.driver = driver
        self.demands: set[int] = set()
        self.online_busy: set[int] = set()
        self.drained: list[tuple[int, bool]] = []

    def usage(self, tenant: int, card: int) -> Any:
        there = self.driver.states.get(FIRST_PID + tenant) in ("running", "locked")
        self.bytes_on_card[tenant, card] = HELD if there and card in self.tenants[tenant] else 0
        return super().usage(tenant, card)

    def processes(self, tenant: int) -> list[Process]:
        return [Process(pid=FIRST_PID + tenant)]

    def sched(self, tenant: int) -> SchedState:
        return SchedState(why=Why.PREEMPTED if tenant in self.online_busy else Why.NONE)

    def drain(self, tenant: int, until_ns: int) -> None:
        self.drained.append((tenant, until_ns != 0))

    def card_memory(self, card: int) -> CardMemory:
        demanded = card in self.demands
        return CardMemory(total_bytes=TOTAL, used_bytes=TOTAL if demanded else 0, demands=demanded)


class Node:
    def __init__(self, driver: Driver, **config: Any) -> None:
        self.world = World(NodeConfig(offline_overcommit=True, restore_hold_ms=1, **config))
        self.driver = driver
        self.engine = LendingEngine(self.driver)
        self.killed: list[Grant] = []
        self.task: asyncio.Task[None] | None = None
        for part in (self.world.served, self.world.scheduling, self.world.life):
            object.__setattr__(part, "engine" if part is self.world.served else "_engine", self.engine)
        self.reclaimer = Reclaimer(
            self.world.served, "nvidia", str(self.world.folder / "lock"), self.killed.append
        )

    def container(self, card: int = 0, state: str = "running", by_hand: bool = False) -> Grant:
        grant = self.world.granted(
            f"c{len(self.world.grants)}",
            MGPU_MEMORY_MIB="512",
            MGPU_QOS="offline",
            MGPU_GPUS=CARDS[card].uuid,
        )
        pid = FIRST_PID + grant.tenant
        grant.reclaimable, grant.state, grant.pid = True, "bound", 1
        self.driver.states[pid] = {"running": "running", "restoring": "restoring"}.get(state, "checkpointed")
        self.driver.alive.add(pid)
        if state != "running":
            grant.reclaim = Reclaim(
                state=cast(Any, state),
                processes=((pid, 1),),
                bytes={card: HELD},
                by_hand=by_hand,
                since_ns=1,
            )
        self.world.store.note(grant)
        return grant

    def pid(self, grant: Grant) -> int:
        return FIRST_PID + grant.tenant

    def runs(self, until: Callable[[], bool], then: Callable[[], object] = lambda: None) -> None:
        """Goes on until so much has happened; `then` happens in its middle."""

        async def run() -> None:
            self.task = self.task or asyncio.create_task(self.reclaimer.run())
            await asyncio.sleep(0.05)
            then()
            self.reclaimer.wake()
            async with asyncio.timeout(WITHIN_S):
                while not until():
                    await asyncio.sleep(0.01)
                    assert not self.task.done()

        self.world.loop.run_until_complete(run())

    def close(self) -> None:
        loop = self.world.loop
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left))
        self.reclaimer.close()
        self.world.close()

    def written(self, grant: Grant) -> Grant | None:
        return next((one for one in self.world.store.load().grants if one.tenant == grant.tenant), None)


def made(monkeypatch: pytest.MonkeyPatch, **config: Any) -> Iterator[Node]:
    monkeypatch.setattr(process_id, "start_time", lambda pid: 1)
    monkeypatch.setattr(process_id, "is_inside", lambda pid, init: True)
    monkeypatch.setattr(process_id, "is_ending", lambda pid: False)
    monkeypatch.setattr(host_memory, "room_bytes", lambda pid: 1 << 40)
    monkeypatch.setattr(move, "_LOOK_S", 0.001)
    driver = Driver()
    monkeypatch.setattr(reclaiming, "Checkpoint", lambda libcuda, alone: driver)
    node = Node(driver, **config)
    monkeypatch.setattr(process_id, "lives", lambda pid, start=0: pid in node.driver.alive)
    yield node
    node.close()
