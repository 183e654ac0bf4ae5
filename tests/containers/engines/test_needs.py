"""Every row of what a container's start needs, broken on purpose: all that is made of the table says so."""

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mgpu_cli import health
from mgpu_cli.doctor import start
from oci_specs import paths
from oci_specs.refusal import Refusal
from runtime_hook import needs
from sim import cdi
from tests.chaos.faults import read_only
from tests.support import arbiter, host
from tests.support.arbiter import Arbiter
from tests.support.commands import run
from tests.support.scrape import scrape
from tests.support.waiting import until
from tests.unit.doctor_support import Node


@pytest.fixture(scope="module")
def mgpu() -> Iterator[Arbiter]:
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
    yield
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
}


def unknown_engine(node: Node) -> None:
    node.with_containerd()
    node.write("/etc/containerd/config.toml", "version = 2")


def told(**members: object) -> Callable[[Node], None]:
    return lambda node: setattr(node, "health", {**(node.health or {}), **members})


# What would be the end of a node, or takes another machine.
SEEN: dict[str, Callable[[Node], None]] = {
    "mgpud": lambda node: setattr(node, "health", None),
    "capabilities": lambda node: node.write("/proc/100/status", "CapEff:\t000001ffffffffdf\n"),
    "driver": told(driver_alive=False),
    "places": told(tables=[{"name": "listeners", "used": 960, "most": 960}]),
    "engine": unknown_engine,
}


def test_every_row_is_broken() -> None:
    assert sorted([*REAL, *SEEN]) == sorted(name for name, _stops, _holds in needs.ROWS)


@pytest.mark.parametrize("name", REAL)
def test_node_says_what_its_containers_miss(mgpu: Arbiter, name: str) -> None:
    def missing(verb: str) -> set[str]:
        return {row["name"] for row in mgpu.ask(verb)["missing"]}

    def told(need: str) -> float:
        return scrape(mgpu.root).one("mgpu_start_need", need=need)

    assert missing("health") == set()
    assert told(name) == 1
    with REAL[name](mgpu):
        found = mgpu.try_mgpu("health")
        assert found.status == 2, found
        assert re.search(rf"^failed +{name} ", found.out, re.MULTILINE), found
        doctor = json.loads(mgpu.try_mgpu("doctor", "-o", "json").out)
        [finding] = [each for each in doctor if each["id"] == f"start-{name}"]
        assert finding["level"] == "fail"
        assert finding["line"]
        until(lambda: name in missing("health"), "mgpud says so")
        assert name in missing("inventory")
        assert told(name) == 0
    until(lambda: not missing("inventory"), "it is mended")
    assert told(name) == 1


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


@pytest.mark.parametrize("name", SEEN)
def test_table_says_what_containers_miss(tmp_path: Path, name: str) -> None:
    node = Node(tmp_path)
    node.with_podman()
    assert needs.missing(node.host().place) == []
    SEEN[name](node)
    [found] = needs.missing(node.host().place)
    assert found.name == name
    assert found.line
    assert [each.id for each in node.findings(start.GROUP)] == [f"start-{name}"]
    [judged] = health.checks(
        Refusal("x", "y", "z"), None, missing=[found], metrics=True, now=datetime.now(UTC)
    )
    assert judged.state == ("attention" if name == "engine" else "failed")


def test_removed_spec_of_simulated_cards_is_written_anew(mgpu: Arbiter) -> None:
    spec = mgpu.root / "cdi" / cdi.FILE_NAME
    before = spec.read_text()
    spec.unlink()
    until(spec.exists, "mgpud has written it")
    assert spec.read_text() == before
