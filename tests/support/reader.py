"""The machine of somebody who types what a page says: plain docker and ctr find the tests' own engines by
variables, and mgpu install finds dockerd's configuration at its usual place.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support import arbiter, host
from tests.support.commands import run
from tests.support.containerd import Containerd
from tests.support.dockerd import RUNTIME, Dockerd, client
from tests.support.places import MGPU
from tests.support.waiting import until

ROOT = Path("/run/mgpu")
SYSTEMD_RUNS = Path("/run/systemd/system")
# What there is no such thing of here, or what another test does on a whole machine.
STUBS = ("systemctl", "apt", "modprobe", "nvidia-smi", "fuser")


@contextmanager
def machine(docker_daemon: Dockerd, ctd: Containerd) -> Iterator[dict[str, str]]:
    """The environment of a reader who has mgpu up, where it goes by itself."""
    config = Path("/etc/docker/daemon.json")
    own = docker_daemon.home / "daemon.json"
    before = own.read_bytes()
    with (
        host.own(Path("/etc"), Path("/usr/local/bin")),
        host.home("sys") as programs,
        arbiter.running(root=ROOT),
    ):
        config.parent.mkdir(exist_ok=True)
        config.unlink(missing_ok=True)
        config.symlink_to(own)
        # Restarts nothing: dockerd is told by a signal, and the containerd of the tests finds the shim as it
        # is.
        SYSTEMD_RUNS.mkdir(parents=True)
        for stub in STUBS:
            (programs / stub).symlink_to("/bin/true")
        # The docker that belongs to the daemon comes first, whatever else the machine has.
        path = f"{MGPU.parent}:{programs}:{Path(client()).parent}:{os.environ['PATH']}"
        env = {**docker_daemon.env, **ctd.env, "PATH": path}
        yield env
        if own.read_bytes() != before:
            # Only some of the steps were run.
            run(MGPU, "uninstall", "docker", "containerd", "--restart", env=env)
        SYSTEMD_RUNS.rmdir()
    shutil.rmtree(ROOT)
    assert own.read_bytes() == before
    # It reads its file some time after the signal.
    link = str(docker_daemon.runtime_link)
    until(
        lambda: docker_daemon.runtimes()[RUNTIME]["path"] == link, "dockerd has forgotten the installed mgpu"
    )
