"""A dockerd of the tests' own, on a containerd of the tests' own, driven with docker."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support import containerd
from tests.support.commands import TIMEOUT_S, Done, attempt, run
from tests.support.engine_home import engine_home
from tests.support.places import IMAGE_ARCHIVE
from tests.support.processes import Service, daemon

RUNTIME = "mgpu"


@dataclass(frozen=True)
class Dockerd:
    """No bridge: containers have the network none or host. Their cgroups are below one with home's name.

    service: the daemon itself, to be restarted; below: its containerd.
    """

    home: Path
    below: containerd.Containerd = field(repr=False, compare=False)
    service: Service = field(repr=False, compare=False)

    @property
    def env(self) -> dict[str, str]:
        """Has a plain `docker` use this dockerd."""
        return {
            "DOCKER_HOST": f"unix://{self.home / 'd.sock'}",
            "DOCKER_CONFIG": os.fspath(self.home / "client"),
        }

    @property
    def runtime_link(self) -> Path:
        """What the runtime named mgpu is: a link, so that one dockerd serves tests with an mgpu of their own
        each.
        """
        return self.home / "mgpu-runtime"

    def point_at(self, runtime: Path) -> None:
        """Have `--runtime=mgpu` start `runtime`."""
        if self.runtime_link.is_symlink() and self.runtime_link.readlink() == runtime:
            return
        fresh = self.home / "mgpu-runtime.new"
        fresh.symlink_to(runtime)
        fresh.rename(self.runtime_link)

    def docker(self, *args: str | Path, timeout_s: float = TIMEOUT_S) -> str:
        """Output of docker; CommandFailedError when it fails."""
        return run(client(), *args, env=self.env, timeout_s=timeout_s)

    def try_docker(self, *args: str | Path, timeout_s: float = TIMEOUT_S) -> Done:
        return attempt(client(), *args, env=self.env, timeout_s=timeout_s)

    def runtimes(self) -> dict[str, dict[str, str]]:
        """By name, as dockerd has them."""
        found: dict[str, dict[str, str]] = json.loads(self.docker("info", "--format", "{{json .Runtimes}}"))
        return found

    def containers(self) -> list[str]:
        return self.docker("ps", "--all", "--quiet", "--no-trunc").split()

    def clear(self) -> None:
        """Removes every container."""
        for left in self.containers():
            self.try_docker("rm", "--force", left)


def client() -> str:
    """The docker that belongs to the dockerd, if there are several."""
    server = shutil.which("dockerd")
    beside = None if server is None else shutil.which("docker", path="/usr/bin:" + str(Path(server).parent))
    return beside or "docker"


@contextmanager
def running(name: str = "dkr", *, remapped_to: str = "") -> Iterator[Dockerd]:
    """A dockerd with the test image and a runtime "mgpu" (see point_at). Its containers are removed at the
    end.

    remapped_to: the user whose subordinate ids containers have; none: they have the host's.
    """
    with containerd.running(f"{name}-c", images=()) as below, engine_home(name) as home:
        config = home / "daemon.json"
        service = Service(
            lambda: daemon(
                ["dockerd", "--config-file", config],
                log=home / "dockerd.log",
                ready=lambda: dockerd.try_docker("version").status == 0,
                env={"TMPDIR": os.fspath(home)},
            )
        )
        dockerd = Dockerd(home, below, service)
        config.write_text(json.dumps(_config(dockerd, below, remapped_to)))
        if remapped_to:
            home.chmod(0o711)
        # Until a test says which; dockerd looks at it when it starts.
        dockerd.point_at(Path(shutil.which("runc") or "runc"))
        with service:
            dockerd.docker("load", "--input", IMAGE_ARCHIVE, timeout_s=120)
            try:
                yield dockerd
            finally:
                dockerd.clear()


def _config(dockerd: Dockerd, below: containerd.Containerd, remapped_to: str) -> dict[str, object]:
    home = dockerd.home
    return {
        "hosts": [f"unix://{home / 'd.sock'}"],
        "containerd": os.fspath(below.address),
        "data-root": os.fspath(home / "data"),
        "exec-root": os.fspath(home / "exec"),
        "pidfile": os.fspath(home / "pid"),
        "cgroup-parent": f"/{home.name}",
        "exec-opts": ["native.cgroupdriver=cgroupfs"],
        "userns-remap": remapped_to,
        "bridge": "none",
        "iptables": False,
        "ip6tables": False,
        "runtimes": {RUNTIME: {"path": os.fspath(dockerd.runtime_link)}},
    }
