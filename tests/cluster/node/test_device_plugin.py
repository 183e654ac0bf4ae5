"""The device plugin against kubelet's published protocol: every order in which either side comes and goes."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cluster.kubelet import methods
from cluster.node import node as node_module
from cluster.node import registration
from cluster.node.endpoint import devices
from cluster.node.mgpud import Mgpud
from cluster.node.node import Node
from cluster.node.registration import Registration
from cluster.process.conditions import Conditions
from cluster.resources import table
from native_sched.daemon.control.server import Server
from oci_specs import parse, schemas
from oci_specs.request import Memory
from tests.cluster.inventories import V100S, node
from tests.cluster.kubelet import FakeKubelet

VKE_CORE = "vke.volcengine.com/mgpu-core"
NAMES = {each.name for each in table.offered(V100S) if each.by == "kubelet"}


class FakeMgpud:
    """mgpud's own control socket, which tells this inventory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cards = 2
        self.lost: set[int] = set()
        self._server: Server | None = None
        self._serving: asyncio.Task[None] | None = None

    def _inventory(self, _message: Mapping[str, Any], _peer: object) -> dict[str, Any]:
        import json

        document = json.loads(node(*[16160] * self.cards).to_json())
        for card in document["cards"]:
            card["healthy"] = card["index"] not in self.lost
        del document["version"]
        return dict(document)

    def start(self) -> None:
        self._server = Server(
            str(self.path),
            {"inventory": self._inventory},
            lambda each: schemas.validate("control", each) and None,
        )
        self._server.listen()
        self._serving = asyncio.ensure_future(self._server.serve())

    async def stop(self) -> None:
        assert self._serving is not None
        assert self._server is not None
        self._serving.cancel()
        with suppress(asyncio.CancelledError):
            await self._serving
        self._server.close()


@dataclass
class World:
    node: Node
    kubelet: FakeKubelet
    mgpud: FakeMgpud
    lines: list[str]
    plugin: asyncio.Task[None]

    async def all_offered(self, share: int = 200) -> None:
        await until(
            lambda: (
                all(self.kubelet.allocatable(name) is not None for name in NAMES)
                and self.kubelet.allocatable(VKE_CORE) == share
            )
        )


async def until(condition: Callable[[], object], seconds: float = 15.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it does not come to be"
        await asyncio.sleep(0.01)


@asynccontextmanager
async def world(folder: Path, *, kubelet: bool = True, mgpud: bool = True) -> AsyncIterator[World]:
    lines: list[str] = []
    arbiter = FakeMgpud(folder / "mgpud.sock")
    if mgpud:
        arbiter.start()
    fake = FakeKubelet(folder)
    if kubelet:
        await fake.start()
    here = Node(name="n1", mgpud=Mgpud(arbiter.path), kubelet=folder, conditions=Conditions(lines.append))
    tasks = [asyncio.ensure_future(each) for each in (here.follow(), Registration(here).run())]
    try:
        yield World(here, fake, arbiter, lines, tasks[1])
    finally:
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        await fake.stop()
        with suppress(AssertionError):
            await arbiter.stop()
        assert all(isinstance(end, asyncio.CancelledError) for end in ends), ends


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module, "LOOK_S", 0.05)
    monkeypatch.setattr(registration, "LOOK_S", 0.05)
    monkeypatch.setattr(registration, "PATIENCE_S", 0.5)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await test()

    asyncio.run(limited())


def test_every_resource_is_offered_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path) as of:
            await of.all_offered()
            await asyncio.sleep(1.2)
            assert sorted(of.kubelet.registrations) == sorted(NAMES)
            assert {name: of.kubelet.capacity(name) for name in NAMES} == {
                each.name: each.amount(V100S) for each in table.offered(V100S) if each.by == "kubelet"
            }
            assert set(of.kubelet.lists.values()) == {1}
            assert of.lines == []

    run(test)


def test_allocation_is_told_to_its_container_alone(tmp_path: Path) -> None:
    class Config:
        aliyun_unit, visible_devices_all = "gib", "ignore"

    async def test() -> None:
        async with world(tmp_path) as of:
            await of.all_offered()
            limits = {"mgpu.dev__memory-64mib": 16, "mgpu.dev__memory-spare-mib": 24}
            one = await of.kubelet.allocate("a", **limits, **{VKE_CORE.replace("/", "__"): 30})
            other = await of.kubelet.allocate("b", **{"aliyun.com__gpu-mem": 8})
            assert one == {
                "mgpu.dev/memory-64mib": "16",
                "mgpu.dev/memory-spare-mib": "24",
                VKE_CORE: "30",
            }
            assert other == {"aliyun.com/gpu-mem": "8"}
            asked = parse.request(one, {}, Config())
            assert asked is not None
            assert (asked.memory, asked.core_percent) == (Memory(mib=1000), 30)
            with pytest.raises(LookupError):
                await of.kubelet.allocate("c", **{VKE_CORE.replace("/", "__"): 171})

    run(test)


def test_kubelet_that_restarts_knows_all_again(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path) as of:
            await of.all_offered()
            for _ in range(3):
                await of.kubelet.restart()
                await of.all_offered()
            assert await of.kubelet.allocate("a", **{"mgpu.dev__gpus": 2}) == {"mgpu.dev/gpus": "2"}

    run(test)


def test_kubelet_that_is_away_is_waited_for_with_one_line(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path, kubelet=False) as of:
            await asyncio.sleep(0.5)
            assert len(of.lines) == 1
            assert of.lines[0].startswith("kubelet is away")
            await of.kubelet.start()
            await of.all_offered()
            assert "kubelet is back" in of.lines

    run(test)


def test_kubelet_killed_leaves_its_socket_and_one_line(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path) as of:
            await of.all_offered()
            await of.kubelet.stop()
            await asyncio.sleep(1.5)
            assert len(of.lines) <= len(NAMES) + 1
            assert len(set(of.lines)) == len(of.lines)
            await of.kubelet.start()
            await of.all_offered()

    run(test)


def test_connection_that_breaks_is_made_again(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path) as of:
            await of.all_offered()
            of.kubelet.hang_up(VKE_CORE)
            await until(lambda: of.kubelet.allocatable(VKE_CORE) == 0)
            await of.all_offered()
            assert of.kubelet.registrations.count(VKE_CORE) == 2
            assert len(of.kubelet.registrations) == len(NAMES) + 1

    run(test)


def test_refused_registration_says_why_once_and_is_tried_again(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path, kubelet=False) as of:
            of.kubelet.refuses.add(VKE_CORE)
            await of.kubelet.start()
            await until(lambda: of.kubelet.registrations.count(VKE_CORE) >= 2)
            [line] = [line for line in of.lines if VKE_CORE in line]
            assert "does not want" in line
            of.kubelet.refuses.clear()
            await of.all_offered()
            await until(lambda: f"{VKE_CORE} is offered" in of.lines)

    run(test)


def test_nothing_is_offered_before_mgpud_has_answered(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path, mgpud=False) as of:
            await asyncio.sleep(0.5)
            assert of.kubelet.registrations == []
            assert len(of.lines) == 1
            of.mgpud.start()
            await of.all_offered()
            assert of.lines[-1] == "mgpud answers again"

    run(test)


def test_mgpud_that_is_away_for_long_has_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module, "AWAY_S", 0.5)

    async def test() -> None:
        async with world(tmp_path) as of:
            await of.all_offered()
            await of.mgpud.stop()
            await of.all_offered(share=0)
            assert of.kubelet.capacity(VKE_CORE) == 200
            of.mgpud.start()
            await of.all_offered()

    run(test)


def test_mgpud_that_is_back_at_once_is_not_noticed(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path) as of:
            await of.all_offered()
            await of.mgpud.stop()
            await asyncio.sleep(0.3)
            of.mgpud.start()
            await asyncio.sleep(0.5)
            assert set(of.kubelet.lists.values()) == {1}

    run(test)


def test_share_of_a_lost_card_goes_and_comes_back(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path) as of:
            await of.all_offered()
            of.mgpud.lost.add(1)
            await of.all_offered(share=100)
            await until(lambda: of.kubelet.allocatable("aliyun.com/gpu-mem") == 15)
            assert [line for line in of.lines if "GPU 1 (GPU-1) is lost" in line]
            of.mgpud.lost.clear()
            await of.all_offered()

    run(test)


def test_clock_that_is_set_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with world(tmp_path) as of:
            await of.all_offered()
            for step in (-1e9, 1e9):
                now = time.time() + step
                monkeypatch.setattr(time, "time", lambda now=now: now)
                await asyncio.sleep(0.5)
            assert set(of.kubelet.lists.values()) == {1}
            await of.kubelet.restart()
            await of.all_offered()

    run(test)


def test_list_of_the_largest_node_fits_one_message() -> None:
    """Eight GPUs of 288 GiB, in seven MIG instances each."""
    largest = node(*[8 * 294912 // 56] * 56)
    for each in table.offered(largest, opt_in=True):
        if each.by == "kubelet":
            assert len(devices(each.amount(largest), True)) < methods.LIST_MAX_BYTES // 2, each.name
