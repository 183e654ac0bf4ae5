"""What mgpu promises of a node: a cap by every engine, and that containers outlive all of its parts."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from lab.hosts.guest.commands import run, until
from lab.hosts.guest.containers import ByContainerd, ByDocker, ByRunc, running, served
from lab.hosts.guest.setup import serves

HOLDER, MGPUD = "mgpu-holder.service", "mgpud.service"


def host() -> None:
    """A node as Debian sets it up: unified cgroups, AppArmor."""
    assert Path("/sys/fs/cgroup/cgroup.controllers").exists()
    assert Path("/sys/module/apparmor/parameters/enabled").read_text().strip() == "Y"


def containers() -> None:
    docker, ctr, runc = ByDocker(), ByContainerd(), ByRunc()
    with running(docker, ctr, runc):
        served(docker, ctr, runc)
        held = run("mgpu", "ps")
        assert held.count("bound") == 3, held
        confined = Path(f"/proc/{docker.pid()}/attr/current").read_text()
        assert confined.startswith("docker-default (enforce)"), confined
        for units in ((MGPUD,), (HOLDER,), (HOLDER, MGPUD)):
            _kill(*units)
            served(docker, ctr, runc)
        for unit in (MGPUD, HOLDER, "containerd.service", "docker.service"):
            run("systemctl", "restart", unit)
            served(docker, ctr, runc)
    until(lambda: "No container" in run("mgpu", "ps"), "nothing is held")


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
