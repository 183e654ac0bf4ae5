"""What mgpu promises of a node: a cap by every engine, and that containers outlive all of its parts."""

import os
import signal
from pathlib import Path

from lab.hosts.guest.commands import run, until
from lab.hosts.guest.containers import (
    FIRST,
    ByContainerd,
    ByDocker,
    capped,
    running,
    served,
)
from lab.hosts.guest.setup import serves

HOLDER, MGPUD = "mgpu-holder.service", "mgpud.service"


def host() -> None:
    """A node as Debian sets it up: unified cgroups, AppArmor."""
    assert Path("/sys/fs/cgroup/cgroup.controllers").exists()
    assert Path("/sys/module/apparmor/parameters/enabled").read_text().strip() == "Y"


def containers() -> None:
    docker, ctr = ByDocker(), ByContainerd()
    with running(docker, ctr):
        served(docker, ctr)
        held = run("mgpu", "ps")
        assert held.count("bound") == 2, held
        confined = Path(f"/proc/{docker.pid()}/attr/current").read_text()
        assert confined.startswith("docker-default (enforce)"), confined
        for units in ((MGPUD,), (HOLDER,), (HOLDER, MGPUD)):
            _kill(*units)
            served(docker, ctr)
        for unit in (MGPUD, HOLDER, "containerd.service", "docker.service"):
            run("systemctl", "restart", unit)
            served(docker, ctr)
    until(lambda: "No container" in run("mgpu", "ps"), "nothing is held")


def is_left() -> None:
    """With a container of each engine, and all that was written on the disk."""
    ways = ByDocker(), ByContainerd()
    for way in ways:
        way.start()
    for way in ways:
        capped(way)
    os.sync()


def comes_back() -> None:
    """By itself, with the container that Docker starts again; nothing else is held."""
    until(serves, "mgpud serves")
    docker, ctr = ByDocker(), ByContainerd()
    try:
        until(lambda: docker.said().count(FIRST) > 1, "Docker starts its container again")
    except TimeoutError as late:
        raise AssertionError(f"{late}: {docker.state()}, and it said {docker.said()[-3:]}") from None
    served(docker)
    held = run("mgpu", "ps")
    assert held.count("bound") == 1, held
    for way in (docker, ctr):
        way.remove()
    containers()


def _kill(*units: str) -> None:
    pids = {unit: _pid(unit) for unit in units}
    # None lives long enough to give another anything.
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids.values():
            os.kill(pid, number)
    until(lambda: all(_pid(unit) not in (0, pid) for unit, pid in pids.items()), f"{units} start again")
    until(serves, "mgpud serves")


def _pid(unit: str) -> int:
    return int(run("systemctl", "show", "--value", "--property=MainPID", unit))
