"""Every row of what a container's start needs, broken on purpose: all that is made of the table says so."""

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from mgpu_cli import health
from oci_specs import paths
from runtime_hook import needs
from sim import cdi
from tests.chaos.faults import read_only
from tests.support import arbiter, host
from tests.support.arbiter import Arbiter
from tests.support.commands import attempt, run
from tests.support.dockerd import RUNTIME, Dockerd
from tests.support.places import MGPU, REPOSITORY
from tests.support.scrape import scrape
from tests.support.waiting import until

MANIFESTS = REPOSITORY / "cluster" / "manifests"


@pytest.fixture(scope="module")
def mgpu(private_host: None) -> Iterator[Arbiter]:
    """On a file system that can be filled."""
    with host.home("needs") as base:
        root = base / "r"
        root.mkdir()
        run("mount", "-t", "tmpfs", "-o", "size=64m,mode=700", "mgpu-test", root)
        try:
            with arbiter.running(root=root) as made:
                yield made
        finally:
            run("umount", "--lazy", root)


@contextmanager
def folder(mgpu: Arbiter) -> Iterator[None]:
    mgpu.root.chmod(0o777)
    yield
    mgpu.root.chmod(0o700)


@contextmanager
def holder(mgpu: Arbiter) -> Iterator[None]:
    pid = mgpu.pid_of("holder")
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def moved(path: Path) -> Iterator[None]:
    away = path.with_name(f"{path.name}.away")
    path.rename(away)
    yield
    away.rename(path)


@contextmanager
def sockets(mgpu: Arbiter) -> Iterator[None]:
    """The holder would make it anew."""
    with holder(mgpu), moved(mgpu.root / "seccomp.sock"):
        yield


@contextmanager
def room(mgpu: Arbiter) -> Iterator[None]:
    filling = mgpu.root / "filling"
    with filling.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError:
            pass
    yield
    filling.unlink()


@contextmanager
def spec(mgpu: Arbiter) -> Iterator[None]:
    odd = mgpu.root / "cdi" / "odd.json"
    odd.write_text("{")
    yield
    odd.unlink()


# What can be broken on a node that serves, without an end to it.
REAL = {
    "folder": folder,
    "sockets": sockets,
    "holder": holder,
    "room": room,
    "runtime": lambda mgpu: moved(mgpu.root / "runtime.conf"),
    "cdi": spec,
    # The journal's file system is one of the tables that can be full.
    "places": room,
}


# What takes an mgpu of its own, or leaves none to ask.
ALONE = ("mgpud", "capabilities", "driver", "engine")


def test_every_row_is_broken() -> None:
    assert sorted([*REAL, *ALONE]) == sorted(name for name, _stops, _holds in needs.ROWS)


def says(mgpu: Arbiter, name: str, state: str = "failed") -> str:
    """What `mgpu health` says of the row that is broken; `mgpu doctor` has what to type."""
    found = mgpu.try_mgpu("health")
    assert found.status == health.STATUS["failed" if state == "failed" else "attention"], found
    row = re.search(rf"^{state} +{name} +(.*)", found.out, re.MULTILINE)
    assert row, found
    doctor = json.loads(mgpu.try_mgpu("doctor", "-o", "json").out)
    [finding] = [each for each in doctor if each["id"] == f"start-{name}"]
    assert finding["level"] == ("fail" if state == "failed" else "warn")
    assert finding["line"]
    return row[1]


def missing(mgpu: Arbiter, verb: str = "health") -> set[str]:
    return {row["name"] for row in mgpu.ask(verb)["missing"]}


def told(mgpu: Arbiter, name: str) -> float:
    return scrape(mgpu.root).one("mgpu_start_need", need=name)


@pytest.mark.parametrize("name", REAL)
def test_node_says_what_its_containers_miss(mgpu: Arbiter, name: str) -> None:
    assert missing(mgpu) == set()
    assert told(mgpu, name) == 1
    with REAL[name](mgpu):
        says(mgpu, name)
        until(lambda: name in missing(mgpu), "mgpud says so")
        assert name in missing(mgpu, "inventory")
        assert told(mgpu, name) == 0
    until(lambda: not missing(mgpu, "inventory"), "it is mended")
    assert told(mgpu, name) == 1


def test_nobody_serves_without_mgpud(mgpu: Arbiter) -> None:
    """A holder that is stopped starts no other."""
    with holder(mgpu):
        mgpu.kill("mgpud")
        assert "not running" in says(mgpu, "mgpud")
    until(lambda: mgpu.try_mgpu("health").status != health.STATUS["failed"], "the next one serves")


def test_mgpud_without_a_capability_says_which(private_host: None) -> None:
    with arbiter.running(under=("setpriv", "--bounding-set", "-kill")) as mgpu:
        assert "CAP_KILL" in says(mgpu, "capabilities")
        assert "capabilities" in missing(mgpu, "inventory")
        assert told(mgpu, "capabilities") == 0


def test_driver_that_is_gone_is_said(private_host: None) -> None:
    """mgpu up would end with its simulated GPUs."""
    with arbiter.running() as mgpu:
        os.kill(mgpu.pid, signal.SIGSTOP)
        try:
            mgpu.kill("simcard")
            until(lambda: "driver" in missing(mgpu), "mgpud says so")
            says(mgpu, "driver")
            assert told(mgpu, "driver") == 0
        finally:
            os.kill(mgpu.pid, signal.SIGCONT)


def test_engine_has_to_have_read_that_mgpu_is_its_runtime(mgpu: Arbiter, docker_daemon: Dockerd) -> None:
    """A dockerd without it; then with a configuration that is newer than it; then told to read that."""
    own = docker_daemon.home / "daemon.json"
    before = own.read_text()
    without = {**json.loads(before), "runtimes": {}}

    def read(config: object) -> None:
        own.write_text(json.dumps(config))
        os.kill(docker_daemon.service.process.pid, signal.SIGHUP)

    socket, config = Path("/run/docker.sock"), Path("/etc/docker/daemon.json")
    with host.own(Path("/etc")):
        config.parent.mkdir(exist_ok=True)
        config.unlink(missing_ok=True)
        config.symlink_to(own)
        socket.symlink_to(docker_daemon.home / "d.sock")
        try:
            read(without)
            until(lambda: RUNTIME not in docker_daemon.runtimes(), "dockerd knows nothing of mgpu")
            assert says(mgpu, "engine", "attention").startswith("mgpu is no runtime of Docker")
            docker_daemon.point_at(mgpu.runtime)
            own.write_text(before)
            assert "is newer than the Docker that runs" in says(mgpu, "engine", "attention")
            until(lambda: told(mgpu, "engine") == 0, "mgpud says so")
            read(json.loads(before))
            until(lambda: RUNTIME in docker_daemon.runtimes(), "dockerd has read it")
            until(lambda: not missing(mgpu), "mgpud says so")
            docker_daemon.runtime_link.unlink()
            assert "which is not there" in says(mgpu, "engine", "attention")
        finally:
            docker_daemon.point_at(mgpu.runtime)
            own.write_text(before)
            socket.unlink()


def test_read_only_folder_has_no_room(mgpu: Arbiter) -> None:
    with read_only(mgpu.root):
        found = mgpu.try_mgpu("health")
        assert found.status == 2, found
        assert f"{mgpu.root} is mounted read-only; mount it writable" in found.out


def test_spec_whose_files_are_gone_starts_nothing(mgpu: Arbiter) -> None:
    """As after another driver was installed."""
    library = Path(paths.lib("sim/libnvidia-ml.so.1"))
    with host.own(library.parent), moved(library):
        found = mgpu.try_mgpu("health")
    assert found.status == 2, found
    assert f"names {library}, which is not there; install mgpu again" in found.out


def test_removed_spec_of_simulated_cards_is_written_anew(mgpu: Arbiter) -> None:
    spec = mgpu.root / "cdi" / cdi.FILE_NAME
    before = spec.read_text()
    spec.unlink()
    until(spec.exists, "mgpud has written it")
    assert spec.read_text() == before


def test_agents_pod_is_ready_unless_nothing_would_start(mgpu: Arbiter) -> None:
    """By the command of its probe, which mgpu-agent runs on the node. What ails one engine is no reason."""
    [agent] = yaml.safe_load((MANIFESTS / "agent.yaml").read_text())["spec"]["template"]["spec"][
        "containers"
    ]
    words = agent["readinessProbe"]["exec"]["command"]
    probe = [word.replace("/opt/mgpu/bin/mgpu ", f"{MGPU} ") for word in words[words.index("--") + 1 :]]

    def status() -> int:
        return attempt(*probe, env={"MGPU_ROOT": str(mgpu.root)}).status

    assert status() == 0
    with room(mgpu):
        assert status() != 0
    assert status() == 0
