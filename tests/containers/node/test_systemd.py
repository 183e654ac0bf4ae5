"""Holder and mgpud as services of a systemd, by the units that mgpu installs."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from install import parts, systemd
from mgpu_cli import runtime_files
from mgpu_cli.state import StateDir
from oci_specs import paths
from oci_specs.refusal import Refusal
from runtime_hook import control
from sim import cdi
from tests.support import host
from tests.support.asking import asking, is_served
from tests.support.commands import attempt
from tests.support.places import MGPU
from tests.support.processes import daemon, kill_left_behind
from tests.support.systemd import Manager, managing, reduced
from tests.support.waiting import until

HOLDER, MGPUD = systemd.UNITS


@dataclass(frozen=True)
class Node:
    state: StateDir
    manager: Manager

    def pid(self, unit: str) -> int:
        return int(self.manager.shown(unit, "MainPID"))

    def stored(self) -> int:
        return int(self.manager.shown(HOLDER, "NFileDescriptorStore"))

    def serves(self) -> bool:
        with suppress(Refusal):
            return bool(control.call(str(self.state.control), "health")["ok"])
        return False


@pytest.fixture(scope="module")
def node(private_host: None) -> Iterator[Node]:
    with host.home("sysn") as base:
        state = StateDir(base / "r")
        state.create()
        runtime_files.write(state, "runc")
        installed = replace(parts.found(root="/run/mgpu", runtime_conf=""), root=os.fspath(state.path))
        units = {name: reduced(systemd.rendered(name, installed)) for name in systemd.UNITS}
        units[MGPUD] = units[MGPUD].replace("--driver nvidia", "--driver sim")
        simcard: list[str | Path] = [paths.libexec("mgpu-simcard"), "--dir", state.sim, "--cards", "v100-16"]
        log = state.log / "simcard.log"
        with (
            daemon(simcard, log=log, ready=lambda: "ready" in log.read_text().splitlines()),
            managing(units) as manager,
        ):
            cdi.write(state.cdi, state.sim / "admin.sock")
            found = Node(state, manager)
            try:
                # The holder comes with it.
                manager.call("start", MGPUD)
                until(found.serves, "mgpud serves")
                yield found
            finally:
                manager.call("stop", MGPUD, HOLDER)
                kill_left_behind(base)


def killed(node: Node, *units: str) -> None:
    pids = {unit: node.pid(unit) for unit in units}
    # None lives long enough to give another anything.
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids.values():
            os.kill(pid, number)
    until(
        lambda: all(node.pid(unit) not in (0, pid) for unit, pid in pids.items()), "they are started again"
    )


def test_containers_outlive_holder_and_mgpud_together(node: Node) -> None:
    with asking(node.state.runtime) as (_, first), asking(node.state.runtime) as (_, second):
        until(lambda: node.stored() == 5, "their listeners, messages and the socket are stored")
        for units in [(HOLDER, MGPUD), (HOLDER,), (HOLDER, MGPUD)]:
            killed(node, *units)
            assert is_served(first), units
            assert is_served(second), units
            assert node.stored() == 5, units
    until(lambda: node.stored() == 1, "what ended leaves the store")


def test_containers_outlive_restarts_and_reloads(node: Node) -> None:
    with asking(node.state.runtime) as (_, running):
        until(lambda: node.stored() == 3, "its listener is stored")
        for words in [
            ("restart", HOLDER, MGPUD),
            ("reload", HOLDER),
            ("restart", HOLDER),
            ("daemon-reexec",),
        ]:
            node.manager.call(*words)
            until(node.serves, "mgpud serves")
            assert is_served(running), words
            until(lambda: node.stored() == 3, "it is stored once")


def test_second_mgpu_beside_the_services_takes_nothing(node: Node) -> None:
    state = node.state
    sockets = [path for path in state.sockets if path != state.notify]
    until(lambda: all(path.is_socket() for path in sockets), "all is served")

    def places() -> list[int]:
        return [path.stat().st_ino for path in sockets]

    before = places()
    holder = paths.libexec("mgpu-holder"), "--seccomp-socket", state.seccomp, "--mgpud-socket", state.holder
    with asking(state.runtime) as (_, running):
        for argv in [(MGPU, "up", "--root", state.path, "--sim", "v100-16"), holder]:
            done = attempt(*argv)
            assert done.status == 1
            [line] = done.err.splitlines()
            assert f"another mgpu-holder (pid {node.pid(HOLDER)})" in line
            assert places() == before
            assert is_served(running)
        with asking(state.runtime) as (_, later):
            assert is_served(later)
    assert node.serves()
    assert places() == before


def test_store_is_emptied_by_a_stop(node: Node) -> None:
    with asking(node.state.runtime) as (_, running):
        until(lambda: node.stored() == 3, "its listener is stored")
        node.manager.call("stop", MGPUD, HOLDER)
        assert not is_served(running)
        assert node.stored() == 0
        node.manager.call("start", MGPUD)
        assert running.process.wait(60) == 128 + signal.SIGKILL
