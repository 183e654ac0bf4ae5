"""An evicted container's way to other cards, against a driver that knows where each process was checkpointed:
whatever is refused, and wherever mgpud ends, the next one finds every process in one place and can go on.
"""

import asyncio
import copy
import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from native_sched.daemon.engine import Engine
from native_sched.daemon.engine_abi import NodeKind
from native_sched.daemon.grants import record
from native_sched.daemon.grants.grants import Grant, Node, Reclaim, ReclaimState
from native_sched.daemon.node import process_id
from native_sched.daemon.node.config import NodeConfig
from native_sched.daemon.reclaim import relocate
from native_sched.daemon.reclaim.checkpoint import Checkpoint, Failed, Patience
from native_sched.daemon.reclaim.move import Mover, NotMoved
from oci_specs.refusal import Refusal
from placement.cards import CardShare
from tests.unit.arbiter_support import CARDS, World

ME = os.getpid()
PIDS = (ME, os.getppid())
UUIDS = tuple(card.uuid for card in CARDS)


class Killed(BaseException):
    """mgpud ends here."""


@dataclass
class Driver:
    """Of two processes: the state, and the card of each. steps: what becomes of each step: it is done,
    refused, or mgpud ends before or after it.
    """

    steps: list[str]
    state: dict[int, str] = field(default_factory=lambda: dict.fromkeys(PIDS, "checkpointed"))
    at: dict[int, str] = field(default_factory=lambda: dict.fromkeys(PIDS, UUIDS[0]))
    granted: str = UUIDS[0]

    async def ask(self, pid: int) -> str:
        return self.state[pid]

    def step(self, pid: int, before: str, after: str, card: str | None = None) -> None:
        assert self.state[pid] == before
        what = self.steps.pop() if self.steps else "done"
        if what == "refused" and before == "checkpointed":
            raise Failed("CUDA_ERROR_UNKNOWN")
        if what == "killed before":
            raise Killed
        self.state[pid] = after
        self.at[pid] = card or self.at[pid]
        if what == "killed after":
            raise Killed

    async def lock(self, pid: int, _timeout_ms: int) -> None:
        self.step(pid, "running", "locked")

    async def checkpoint(self, pid: int, _patience: Patience) -> None:
        assert self.state[pid] == "locked"
        self.state[pid] = "checkpointed"

    async def restore(self, pid: int, _patience: Patience, pairs: Iterable[tuple[str, str]] = ()) -> None:
        there = self.at[pid]
        for old, new in pairs:
            assert old == there, "a pair names the GPU where the process was"
            there = new
        assert there == self.granted, "it is restored onto what its container is granted"
        self.step(pid, "checkpointed", "locked", there)

    async def unlock(self, pid: int) -> None:
        self.step(pid, "locked", "running")


class OneCard:
    """An engine that takes everything."""

    def reclaim(self, *_args: object, **_members: object) -> None:
        pass

    def usage(self, *_args: object) -> SimpleNamespace:
        return SimpleNamespace(used_bytes=0)


def evicted(world: World) -> Grant:
    grant = world.granted("c", MGPU_MEMORY_MIB="512", MGPU_QOS="offline", MGPU_GPUS="GPU-0")
    grant.reclaimable, grant.state, grant.pid = True, "bound", ME
    grant.nodes = tuple(Node(1, 2 + minor, NodeKind.CARD, minor) for minor in range(2))
    processes = tuple((pid, process_id.start_time(pid)) for pid in PIDS)
    grant.reclaim = Reclaim(state=ReclaimState.EVICTED, processes=processes, bytes={0: 9}, by_hand=True)
    return grant


def planned(world: World, grant: Grant, *names: str, closed: tuple[int, ...] = ()) -> tuple[CardShare, ...]:
    return relocate.plan(world.served, grant, names, driver_version="580.1", closed=closed)


outcomes = st.lists(st.sampled_from(["done", "refused", "killed before", "killed after"]), max_size=8)


@given(outcomes, st.lists(st.integers(0, 1), min_size=1, max_size=4))
@settings(deadline=None, max_examples=50)
def test_every_process_is_restored_from_where_it_was(steps: list[str], wanted: list[int]) -> None:
    world = World(NodeConfig(offline_overcommit=True))
    grant = evicted(world)
    driver = Driver(steps)
    written = [copy.deepcopy(grant)]

    def save(grant: Grant, reclaim: Reclaim) -> None:
        written.append(record.from_json(record.to_json(replace(grant, reclaim=reclaim))))

    async def go(index: int) -> None:
        nonlocal grant
        relocate.apply(world.served, grant, planned(world, grant, UUIDS[index]))
        written.append(record.from_json(record.to_json(grant)))
        driver.granted = grant.cards[0].uuid
        mover = Mover(cast(Engine, OneCard()), cast(Checkpoint, _asked(driver)), save)
        try:
            await mover.restore(grant)
        except NotMoved:
            pass
        except Killed:
            while True:
                world.grants.remove(grant)
                grant = written[-1]
                world.grants.add(grant)
                try:
                    await mover.recover(grant)
                    break
                except Killed:
                    continue
        states = set(driver.state.values())
        assert states == {"running" if grant.reclaim.state == "running" else "checkpointed"}, states
        assert grant.reclaim.state in ("running", "evicted")

    for index in wanted:
        if grant.reclaim.state == "running":
            assert set(driver.at.values()) == {grant.cards[0].uuid}
            assert grant.reclaim.were == {}
            break
        asyncio.run(go(index))
    world.close()


def _asked(driver: Driver) -> object:
    """The driver as Checkpoint speaks with it."""

    class Asked:
        state = staticmethod(driver.ask)
        lock = staticmethod(driver.lock)
        checkpoint = staticmethod(driver.checkpoint)
        restore = staticmethod(driver.restore)
        unlock = staticmethod(driver.unlock)

    return Asked()


def test_account_follows_and_the_record_says_where_it_was() -> None:
    world = World(NodeConfig(offline_overcommit=True))
    grant = evicted(world)
    relocate.apply(world.served, grant, planned(world, grant, UUIDS[1]))
    assert [card.uuid for card in grant.cards] == [UUIDS[1]]
    assert world.engine.tenants[grant.tenant] == {1: 512 << 20}
    assert world.engine.nodes[grant.tenant] == [(1, 3, NodeKind.CARD, 1)]
    assert grant.reclaim.bytes == {1: 9}
    assert grant.reclaim.were == dict.fromkeys(PIDS, (UUIDS[0],))
    assert not grant.reclaim.by_hand
    [read] = world.store.load().grants
    assert (read.cards, read.reclaim) == (grant.cards, grant.reclaim)
    relocate.apply(world.served, grant, planned(world, grant, UUIDS[0]))
    assert grant.reclaim.were == {}
    world.close()


@pytest.mark.parametrize("refuses", ["move", "schedule"])
def test_move_that_the_engine_refuses_leaves_all_as_it_was(refuses: str) -> None:
    world = World(NodeConfig(offline_overcommit=True))
    grant = evicted(world)
    world.store.save(grant)
    before, caps = copy.deepcopy(grant), copy.deepcopy(world.engine.tenants)
    there = planned(world, grant, UUIDS[1])
    world.engine.refuses.add(refuses)
    with pytest.raises(Refusal):
        relocate.apply(world.served, grant, there)
    assert (grant, world.engine.tenants) == (before, caps)
    [read] = world.store.load().grants
    assert (read.cards, read.reclaim) == (before.cards, before.reclaim)
    world.close()


def test_what_is_not_a_card_like_its_own_is_refused() -> None:
    world = World(NodeConfig(offline_overcommit=True))
    grant = evicted(world)
    there = UUIDS[1]
    with pytest.raises(Refusal, match="has fallen off the bus"):
        planned(world, grant, there, closed=(1,))
    with pytest.raises(Refusal, match="onto its own GPUs only"):
        relocate.plan(world.served, grant, [there], driver_version="575.51", closed=())
    world.served.cards[1] = replace(CARDS[1], instance=(1, 0))
    with pytest.raises(Refusal, match="is a MIG instance"):
        planned(world, grant, there)
    world.served.cards[1] = replace(CARDS[1], name="Tesla T4")
    with pytest.raises(Refusal, match="is a Tesla T4, and what was on"):
        planned(world, grant, there)
    world.served.cards[1] = CARDS[1]
    with pytest.raises(Refusal, match="without a device node of GPU 1"):
        planned(world, replace(grant, nodes=grant.nodes[:1]), there)
    assert planned(world, grant, UUIDS[0]) == grant.cards
    world.granted("full", MGPU_MEMORY_MIB="16160", MGPU_GPUS=there, MGPU_QOS="offline")
    with pytest.raises(Refusal, match="MiB"):
        planned(world, grant, there)
    world.close()
