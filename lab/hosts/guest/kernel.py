"""What mgpu asks of a kernel: a container's cap, and that it is served by the next mgpud after a kill."""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from lab.hosts.guest.commands import run, until
from lab.hosts.guest.containers import ByRunc, capped, running, served
from lab.hosts.guest.setup import serves

START_S = 180


def host() -> None:
    """Unified cgroups, and AppArmor on, as Debian has them."""
    assert Path("/sys/fs/cgroup/cgroup.controllers").exists()
    assert Path("/sys/module/apparmor/parameters/enabled").read_text().strip() == "Y"


def up() -> None:
    log = Path("/run/up.log")
    with log.open("wb") as said:
        subprocess.Popen(
            ["mgpu", "up", "--sim", "v100-16"], stdin=subprocess.DEVNULL, stdout=said, stderr=said
        )
    try:
        until(serves, "mgpu serves", within_s=START_S)
    except TimeoutError as error:
        raise TimeoutError(f"{error}; it said: {' | '.join(log.read_text().splitlines()[-5:])}") from error


def caps_and_kills() -> None:
    """By runc; AppArmor confines the container by a profile of its own, which mgpud has to look through."""
    runc = ByRunc()
    with running(runc):
        served(runc)
        for name in ("mgpud", "mgpu-holder"):
            for pid in _pids(name):
                os.kill(pid, signal.SIGKILL)
            until(serves, f"there is another {name}")
            served(runc)
    until(lambda: "No container" in run("mgpu", "ps"), "nothing is held")


def is_left() -> None:
    """With a container that works; all that was written is on the disk, the state folder too."""
    runc = ByRunc()
    runc.start()
    capped(runc)
    served(runc)
    os.sync()


def comes_back() -> None:
    """Nothing that was granted before the cut is believed, and a container is served as before."""
    held = run("mgpu", "ps")
    assert "No container" in held, held
    runc = ByRunc()
    with running(runc):
        served(runc)


def _pids(name: str) -> list[int]:
    """A program of Python's is named behind it and its option."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(FileNotFoundError, ProcessLookupError):
            words = path.read_bytes().split(b"\0")[:3]
            if name.encode() in [os.path.basename(word) for word in words]:
                found.append(int(path.parent.name))
    assert found, f"there is no {name}"
    return found
