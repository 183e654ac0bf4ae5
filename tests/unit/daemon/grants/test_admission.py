"""From an admit message to a pass, a grant or a refusal, and a grant's life after it, on an engine that only
counts.
"""

import gc
import os
import signal
import subprocess
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from mgpu_cli import render
from native_sched.daemon.engine_abi import Unsuspendable
from native_sched.daemon.grants.admission import grant_document
from native_sched.daemon.links.holder import Listener
from native_sched.daemon.log import LOG
from native_sched.daemon.node import device_nodes
from native_sched.daemon.node.config import NodeConfig
from oci_specs import schemas
from oci_specs.refusal import Refusal
from tests.unit.arbiter_support import World

OPEN_CGROUP = {"how": "cgroup", "detail": "device rule a *:* rwm"}
NODE = {"how": "device", "detail": "/dev/nvidia0"}
HOST_PIDS = {"how": "hostpid", "detail": "the host's pid namespace"}


@pytest.fixture
def open_world() -> Iterator[World]:
    made = World(NodeConfig(allow_privileged=True))
    yield made
    made.close()


def test_container_without_request_passes(world: World) -> None:
    assert world.admit() is None
    assert world.admit(reach=[HOST_PIDS]) is None
    assert world.engine.tenants == {}


def test_grant_matches_its_schema_and_the_engine_library(world: World) -> None:
    grant = world.granted(MGPU_MEMORY_MIB="2048", MGPU_GPUS="2")
    assert world.engine.tenants == {grant.tenant: {0: 1024 << 20, 1: 1024 << 20}}
    document = grant_document(grant, listener_path="/run/x", socket="/run/y")
    assert schemas.validate("grant", document) == document
    assert [state.free_mib for state in world.served.card_states(world.grants)] == [16160 - 1024] * 2


@pytest.mark.parametrize("reach", [[NODE], [OPEN_CGROUP]])
def test_reach_without_a_request_is_refused(world: World, reach: list[Any]) -> None:
    with pytest.raises(Refusal, match="without a grant") as refused:
        world.admit(reach=reach)
    assert reach[0]["detail"] in refused.value.line()
    assert "set allow_privileged = true in node.toml" in refused.value.hint
    assert len(world.grants) == 0


@pytest.mark.parametrize("way", [OPEN_CGROUP, HOST_PIDS, {"how": "tree", "detail": "/dev on /d"}])
def test_open_way_beside_a_grant_is_refused_or_advisory(
    world: World, open_world: World, way: dict[str, str]
) -> None:
    with pytest.raises(Refusal, match="beside its grant") as refused:
        world.admit(reach=[way], MGPU_MEMORY_MIB="1024")
    assert "set allow_privileged = true in node.toml" in refused.value.hint
    grant = open_world.admit(reach=[way], MGPU_MEMORY_MIB="1024")
    assert grant is not None
    assert grant.advisory


def test_replaced_way_does_not_refuse_a_grant(world: World) -> None:
    grant = world.admit(reach=[NODE], MGPU_MEMORY_MIB="1024")
    assert grant is not None
    assert not grant.advisory


def test_allowed_privileged_without_a_request_gets_a_filter_and_no_card(open_world: World) -> None:
    grant = open_world.admit(reach=[OPEN_CGROUP])
    assert grant is not None
    assert (grant.advisory, grant.cards) == (True, ())
    assert schemas.validate("grant", grant_document(grant, listener_path="/x", socket="/y"))


def test_second_grant_of_a_container_is_refused(world: World) -> None:
    grant = world.granted("same")
    with pytest.raises(Refusal, match="already holds a grant"):
        world.granted("same")
    world.life.release(grant)
    world.granted("same")


def test_release_gives_back_only_when_nothing_is_held(world: World) -> None:
    grant = world.granted()
    world.engine.busy.add(grant.tenant)
    world.life.release(grant)
    world.life.release(grant)
    assert (grant.state, len(world.grants)) == ("draining", 1)
    assert world.served.card_states(world.grants)[0].free_mib == 16160 - 1024, "memory still held counts"
    world.engine.busy.clear()
    world.life.something_ended()
    assert len(world.grants) == 0
    world.life.release(grant)


def test_bind_is_idempotent_and_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_nodes, "identities", lambda *_arguments: [])
    grant = world.granted()
    world.life.bind(grant, os.getpid())
    world.life.bind(grant, os.getpid())
    assert (grant.state, grant.pid) == ("bound", os.getpid())
    with pytest.raises(Refusal, match="is bound"):
        world.life.bind(grant, 1)
    world.life.release(grant)
    with pytest.raises(Refusal, match="is draining"):
        world.life.bind(grant, os.getpid())


@pytest.mark.parametrize("binds", [True, False])
def test_ended_grant_is_not_kept(world: World, monkeypatch: pytest.MonkeyPatch, binds: bool) -> None:
    """Its lease is for long: a node where containers of an instant come and go would keep them all until
    then.
    """
    monkeypatch.setattr(device_nodes, "identities", lambda *_arguments: [])
    grant = world.granted()
    if binds:
        world.life.bind(grant, os.getpid())
    world.life.release(grant)
    world.turn()
    ended = weakref.ref(grant)
    del grant
    gc.collect()
    assert ended() is None


def test_violation_kills_the_container_once_with_a_reason(
    world: World, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(device_nodes, "identities", lambda *_arguments: [])
    grant, other = world.granted("c1"), world.granted("c2")
    with subprocess.Popen(["sleep", "60"]) as cheat, subprocess.Popen(["sleep", "60"]) as neighbour:
        world.life.bind(grant, cheat.pid)
        world.life.bind(other, neighbour.pid)
        world.engine.unaccounted[grant.tenant] = 3 << 20
        world.life.something_ended()
        assert cheat.wait(5) == -signal.SIGKILL
        world.life.something_ended()
        assert neighbour.poll() is None
        neighbour.kill()
    said = capfd.readouterr().err
    assert said.count("event=killed-unaccounted container=c1 bytes=3145728") == 1
    rows = {row["container_id"]: row for row in world.ask("list")["containers"]}
    assert (rows["c1"]["unaccounted_bytes"], rows["c2"]["unaccounted_bytes"]) == (3 << 20, 0)
    assert render.state(rows["c1"]).endswith(", killed")


@pytest.mark.parametrize(
    ("why", "event", "shown"),
    [
        ((Unsuspendable.HIDDEN, 0), "killed-hidden container=c1", "no process shows its driver files"),
        (
            (Unsuspendable.REFUSED, 0x40),
            'killed-unsuspendable container=c1 why="RM\'s status 0x40"',
            "the driver refuses to suspend it, RM's status 0x40",
        ),
    ],
)
def test_container_that_cannot_be_suspended_is_killed_once(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    why: tuple[Unsuspendable, int],
    event: str,
    shown: str,
) -> None:
    monkeypatch.setattr(device_nodes, "identities", lambda *_arguments: [])
    grant, other = world.granted("c1"), world.granted("c2")
    with subprocess.Popen(["sleep", "60"]) as cheat, subprocess.Popen(["sleep", "60"]) as neighbour:
        world.life.bind(grant, cheat.pid)
        world.life.bind(other, neighbour.pid)
        world.engine.unsuspendable[grant.tenant] = why
        world.life.something_ended()
        assert cheat.wait(5) == -signal.SIGKILL
        world.life.something_ended()
        assert neighbour.poll() is None
        neighbour.kill()
    assert capfd.readouterr().err.count(f"event={event}") == 1
    rows = {row["container_id"]: row for row in world.ask("list")["containers"]}
    assert (rows["c1"]["unsuspendable"], rows["c2"]["unsuspendable"]) == (shown, None)
    assert render.state(rows["c1"]).endswith(", killed")


def test_lease_that_runs_out(world: World) -> None:
    grant = world.unregistered()
    world.life.begin(grant, os.getpid(), 0)
    assert len(world.grants) == 1
    world.turn()
    assert len(world.grants) == 0


def test_runtime_that_is_already_gone(world: World) -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    grant = world.unregistered()
    world.life.begin(grant, pid, 60)
    world.turn()
    assert len(world.grants) == 0


@pytest.mark.parametrize("spoil", ["nonce", "container", "draining"])
def test_listener_without_grant_is_closed_and_dropped(
    world: World, spoil: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    monkeypatch.setattr(LOG, "heard", lambda event, fields: events.append(event))
    grant = world.granted("c1")
    if spoil == "draining":
        world.engine.busy.add(grant.tenant)
        world.life.release(grant)
    fd = os.memfd_create("listener")
    world.listeners.take(
        Listener(
            holder_id=5,
            fd=fd,
            container_id="other" if spoil == "container" else "c1",
            metadata="0" * 32 if spoil == "nonce" else grant.nonce,
            status="creating",
        )
    )
    assert world.engine.listeners == []
    assert world.link.dropped == [5]
    with pytest.raises(OSError):
        os.fstat(fd)
    assert events == ["ended-meanwhile" if spoil == "draining" else "listener-without-grant"]


def test_listener_is_served_as_its_tenant(world: World) -> None:
    grant = world.granted("c1")
    fd = os.memfd_create("listener")
    world.listeners.take(
        Listener(holder_id=5, fd=fd, container_id="c1", metadata=grant.nonce, status="creating")
    )
    assert world.engine.listeners == [(grant.tenant, fd)]
