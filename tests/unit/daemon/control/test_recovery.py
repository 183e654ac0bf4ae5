"""The next mgpud goes on where the one before was."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from native_sched.daemon.control import recovery
from native_sched.daemon.control.recovery import Recovered
from native_sched.daemon.engine import Engine
from native_sched.daemon.engine_abi import NodeKind, TenantClass
from native_sched.daemon.grants.grants import Grant
from native_sched.daemon.links.holder import Listener
from native_sched.daemon.node import device_nodes as nodes
from native_sched.daemon.node import freezer, process_id
from native_sched.daemon.node.config import NodeConfig
from native_sched.daemon.node.freezer import StateFile
from oci_specs import schemas
from oci_specs.refusal import Refusal
from oci_specs.vocabulary import FIXED_SHARE
from tests.unit.arbiter_support import World

NODE = os.stat("/dev/null")


class Node:
    """One node and mgpuds that come after one another on it. journal: tenants that the engine's journal
    has.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.listeners: list[tuple[int, Grant]] = []
        self.world = World(NodeConfig(), folder)

    def next(self, *, journal: bool = True, refuses: str | None = None) -> Recovered:
        """mgpud is killed, and followed by another."""
        tenants = set(self.world.engine.tenants)
        self.world.close()
        world = self.world = World(NodeConfig(), self._folder)
        world.engine.journal = tenants if journal else set()
        if refuses:
            world.engine.refuses.add(refuses)
        found = world.store.load()
        world.listeners.unreadable = found.unreadable

        def hand_over(listeners: Any) -> None:
            for holder_id, grant in self.listeners:
                listeners.take(arriving(grant, holder_id))

        engine = cast(Engine, world.engine)
        done = recovery.take_over(
            engine,
            world.grants,
            world.scheduling,
            world.listeners,
            found,
            hand_over,
            recovery.Stages(),
            NodeConfig(),
        )
        assert list(done.stages_ms) == ["loaded", "tenants", "scheduler", "listeners"]
        world.life.resume_all(world.listeners)
        world.turn()
        return done


def arriving(grant: Grant, holder_id: int = 1, pid: int = 0) -> Listener:
    return Listener(
        holder_id=holder_id,
        fd=os.memfd_create("listener"),
        container_id=grant.container_id,
        metadata=grant.nonce,
        status="running",
        pid=pid,
    )


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr(nodes, "identities", lambda *_arguments: [(NODE, NodeKind.CARD, 0)])
    made = Node(tmp_path)
    yield made
    made.world.close()


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as made:
        yield made
        made.kill()


def only(node: Node) -> Grant:
    [grant] = node.world.grants
    return grant


def test_bound_container_goes_on(node: Node, process: subprocess.Popen[bytes]) -> None:
    before = node.world.granted("a", MGPU_MEMORY_MIB="1024", MGPU_QOS="offline")
    node.world.life.bind(before, process.pid)
    node.listeners = [(7, before)]
    done = node.next()
    after = only(node)
    assert after == before
    engine = node.world.engine
    assert engine.tenants == {before.tenant: {before.cards[0].index: 1024 << 20}}
    assert engine.nodes == {before.tenant: [(NODE.st_dev, NODE.st_ino, NodeKind.CARD, 0)]}
    assert engine.policies == {before.cards[0].index: FIXED_SHARE}
    assert engine.scheduled == {before.tenant: (TenantClass.OFFLINE, 100)}
    assert [tenant for tenant, _fd in engine.listeners] == [before.tenant]
    assert (done.tenants, done.from_journal, done.listeners, done.failed) == (1, 1, 1, 0)
    process.kill()
    process.wait()
    node.world.loop.run_until_complete(_moment())
    assert len(node.world.grants) == 0
    assert os.listdir(node.world.store.folder) == []


async def _moment() -> None:
    import asyncio

    await asyncio.sleep(0.1)


def test_numbers_are_never_given_twice(node: Node, process: subprocess.Popen[bytes]) -> None:
    node.world.life.release(node.world.granted("a"))
    kept = node.world.granted("b")
    node.world.life.bind(kept, process.pid)
    node.world.life.release(node.world.granted("c"))
    node.next()
    assert node.world.granted("d").tenant == 4
    node.next()
    assert node.world.granted("e").tenant == 5


def test_container_that_ended_meanwhile_is_drained(node: Node) -> None:
    with subprocess.Popen(["true"]) as short:
        grant = node.world.granted("a")
        grant_pid = short.pid
        start = process_id.start_time(grant_pid)
        node.world.store.save(grant, state="bound", pid=grant_pid, pid_start=start)
    done = node.next()
    assert (done.ended, len(node.world.grants)) == (1, 0)


def test_reused_pid_is_not_the_container(node: Node, process: subprocess.Popen[bytes]) -> None:
    grant = node.world.granted("a")
    node.world.life.bind(grant, process.pid)
    node.world.store.save(grant, pid_start=grant.pid_start - 1)
    assert node.next().ended == 1
    assert len(node.world.grants) == 0
    assert process.poll() is None


def test_admitted_container_keeps_the_rest_of_its_lease(node: Node) -> None:
    node.world.granted("a")
    node.next()
    assert only(node).state == "admitted"
    grant = only(node)
    node.world.store.save(grant, lease_end_ns=time.monotonic_ns() - 1)
    node.next()
    node.world.loop.run_until_complete(_moment())
    assert len(node.world.grants) == 0


def test_admitted_container_without_runtime_ends(node: Node) -> None:
    grant = node.world.granted("a")
    node.world.store.save(grant, runtime_start=1)
    node.next()
    assert len(node.world.grants) == 0


def test_draining_container_finishes_when_empty(node: Node) -> None:
    grant = node.world.granted("a")
    node.world.engine.busy.add(grant.tenant)
    node.world.life.release(grant)
    assert only(node).state == "draining"
    node.listeners = [(3, grant)]
    done = node.next()
    # The fake engine has nothing of it now. Its listener was served until then: it was before.
    assert (done.listeners, len(node.world.grants)) == (1, 0)
    node.world.listeners.take(arriving(grant, 4))
    assert node.world.link.dropped == [4]


@pytest.mark.parametrize("frozen", [True, False])
def test_freezer_is_read_anew_after_a_restart(
    node: Node,
    process: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    frozen: bool,
) -> None:
    grant = node.world.granted("a")
    node.world.life.bind(grant, process.pid)
    node.world.store.save(grant, paused=not frozen)
    events = tmp_path / "events"
    events.write_text(f"frozen {frozen:d}\n")
    monkeypatch.setattr(freezer, "state_file", lambda pid: StateFile(str(events), True))
    node.next()
    assert only(node).paused == frozen
    assert node.world.engine.paused == {grant.tenant: frozen}


def test_live_changes_and_operator_policy_survive_a_restart(
    node: Node, process: subprocess.Popen[bytes]
) -> None:
    grant = node.world.granted("a", MGPU_MEMORY_MIB="1024")
    node.world.life.bind(grant, process.pid)
    node.world.ask("set", container="a", memory_mib=2048, **{"class": "offline"})
    node.world.ask("policy", policy="native-burst-share")
    node.next()
    after = only(node)
    assert (after.qos, after.policy, after.cards[0].memory_mib) == ("offline", "native-burst-share", 2048)
    assert {row["owner"] for row in node.world.ask("policy")["cards"]} == {"operator"}


def spoil(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_arguments: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("native_sched.daemon.node.record_file._write", full)


def test_change_that_cannot_be_saved_is_not_made(
    node: Node, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    grant, other = node.world.granted("a", MGPU_MEMORY_MIB="1024"), node.world.unregistered()
    spoil(monkeypatch)
    before = (dict(node.world.engine.tenants), dict(node.world.engine.policies))
    for act in (
        lambda: node.world.life.begin(other, os.getpid(), 60),
        lambda: node.world.life.bind(grant, process.pid),
        lambda: node.world.ask("set", container="a", memory_mib=2048),
        lambda: node.world.ask("policy", policy="native-burst-share"),
    ):
        with pytest.raises(Refusal, match="cannot write down") as refused:
            act()
        assert refused.value.code == "not-recorded"
    assert (grant.state, grant.policy, grant.cards[0].memory_mib) == ("admitted", "fixed-share", 1024)
    assert (node.world.engine.tenants, node.world.engine.policies) == before
    assert [each.container_id for each in node.world.grants] == ["a"]
    node.world.life.release(grant)
    assert len(node.world.grants) == 0, "what ends, ends"


def test_engine_without_room_leaves_no_record(node: Node) -> None:
    node.world.engine.refuses.add("tenant")
    with pytest.raises(Refusal, match="No space left on device") as refused:
        node.world.granted("a")
    assert refused.value.code == "not-served"
    assert os.listdir(node.world.store.folder) == []


def test_unrecovered_container_leaves_others_served(node: Node, process: subprocess.Popen[bytes]) -> None:
    grant = node.world.granted("a")
    node.world.life.bind(grant, process.pid)
    node.listeners = [(1, grant)]
    done = node.next(refuses="tenant")
    assert (done.failed, done.listeners) == (1, 0)
    assert node.world.link.dropped == [1]
    assert only(node).state == "bound", "what it has of the GPU stays reserved while it lives"


def test_beside_a_container_whose_grant_is_lost_nothing_is_admitted(
    node: Node, process: subprocess.Popen[bytes]
) -> None:
    grant = node.world.granted("a")
    node.world.life.bind(grant, process.pid)
    Path(node.world.store.folder, f"{grant.nonce}.json").write_text("{")
    lost = arriving(grant, 9, process.pid)
    node.world.close()
    world = node.world = World(NodeConfig(), node._folder)
    found = world.store.load()
    world.listeners.unreadable = found.unreadable
    engine = cast(Engine, world.engine)
    recovery.take_over(
        engine,
        world.grants,
        world.scheduling,
        world.listeners,
        found,
        lambda each: each.take(lost),
        recovery.Stages(),
        NodeConfig(),
    )
    world.life.resume_all(world.listeners)
    assert (world.link.dropped, world.engine.listeners) == ([9], [])
    assert world.ask("health")["lost"] == ["a"]
    asked: dict[str, Any] = {
        "container_id": "b",
        "bundle": "/b",
        "rootfs": "/r",
        "annotations": {},
        "reach": [],
    }
    asked |= {"env": {"MGPU_MEMORY_MIB": "512"}, "seccomp_listener": None}
    with pytest.raises(Refusal, match="its grant cannot be read any more"):
        world.ask("admit", **asked)
    assert world.ask("admit", **{**asked, "env": {}}) == {"action": "pass"}
    process.kill()
    process.wait()
    world.loop.run_until_complete(_moment())
    assert world.ask("health")["lost"] == []
    assert world.ask("admit", **asked)["action"] == "grant"


def test_repeated_admit_gets_the_same_grant(node: Node) -> None:
    asked: dict[str, Any] = {
        "container_id": "b",
        "bundle": "/b",
        "rootfs": "/r",
        "annotations": {},
        "reach": [],
    }
    asked |= {"env": {"MGPU_MEMORY_MIB": "512"}, "seccomp_listener": None}
    first = node.world.ask("admit", **asked)
    node.next()
    assert node.world.ask("admit", **asked) == first
    assert len(node.world.grants) == 1
    with pytest.raises(Refusal, match="already holds a grant"):
        node.world.ask("admit", **{**asked, "env": {"MGPU_MEMORY_MIB": "1024"}})


def test_every_document_is_what_its_schema_says(node: Node, process: subprocess.Popen[bytes]) -> None:
    grant = node.world.granted("a")
    node.world.life.bind(grant, process.pid)
    for path in Path(node.world.store.folder).glob("*.json"):
        schemas.validate("grant_record", json.loads(path.read_bytes()))
    schemas.validate("node_state", json.loads((node._folder / "node-state.json").read_bytes()))
