"""A containerd of the tests' own, driven with ctr."""

import functools
import os
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.commands import TIMEOUT_S, Done, attempt, run
from tests.support.engine_home import engine_home
from tests.support.places import IMAGE_ARCHIVE, IMAGE_NAME
from tests.support.processes import Service, daemon

NO_CRI = 'disabled_plugins = ["io.containerd.grpc.v1.cri"]'

# ctr's default is a limit, for which a unified hierarchy may have no controller.
NO_LIMITS = ("--cpu-shares", "0")

_CONFIG = """\
version = {version}
root = "{home}/root"
state = "{home}/state"
{head}
[grpc]
  address = "{home}/c.sock"
[ttrpc]
  address = "{home}/c.ttrpc"
[plugins."io.containerd.internal.v1.opt"]
  path = "{home}/opt"
{plugins}
"""


@functools.cache
def version() -> tuple[int, int]:
    """Of the containerd on PATH."""
    found = re.search(r" v?(\d+)\.(\d+)", run("containerd", "--version"))
    assert found
    return int(found[1]), int(found[2])


def major() -> int:
    """From 2 on the CRI plugin has another name, and tables of several files are merged."""
    return version()[0]


def cri_plugin() -> str:
    """The name of the CRI plugin in a configuration of the newest version that this containerd reads."""
    return "io.containerd.grpc.v1.cri" if major() < 2 else "io.containerd.cri.v1.runtime"


@dataclass(frozen=True)
class Containerd:
    """Containers get a cgroup below one with home's name, as long as that is their namespace too.

    service: the daemon itself, to be restarted.
    """

    home: Path
    namespace: str
    service: Service = field(repr=False, compare=False)

    @property
    def address(self) -> Path:
        return self.home / "c.sock"

    @property
    def env(self) -> dict[str, str]:
        """Has a plain `ctr` use this containerd."""
        return {"CONTAINERD_ADDRESS": os.fspath(self.address), "CONTAINERD_NAMESPACE": self.namespace}

    def argv(self, *args: str | Path) -> list[str | Path]:
        return ["ctr", "--address", self.address, "--namespace", self.namespace, *args]

    def ctr(self, *args: str | Path, timeout_s: float = TIMEOUT_S) -> str:
        """Output of ctr; CommandFailedError when it fails."""
        return run(*self.argv(*args), timeout_s=timeout_s)

    def try_ctr(self, *args: str | Path, timeout_s: float = TIMEOUT_S) -> Done:
        return attempt(*self.argv(*args), timeout_s=timeout_s)

    def run_argv(
        self,
        container: str,
        *command: str,
        runtime: str | Path = "runc",
        annotations: dict[str, str] | None = None,
        env: dict[str, str] | None = None,
        options: Sequence[str | Path] = (),
    ) -> list[str | Path]:
        """The command that runs `command` in a new container of the test image; options are ctr run's own."""
        told: list[str | Path] = ["--runc-binary", runtime, *options]
        for key, value in (annotations or {}).items():
            told += ["--annotation", f"{key}={value}"]
        for key, value in (env or {}).items():
            told += ["--env", f"{key}={value}"]
        return self.argv("run", *NO_LIMITS, *told, IMAGE_NAME, container, *command)

    def remove(self, container: str) -> None:
        """Kill and delete a container, if it is there."""
        self.try_ctr("task", "delete", "--force", container)
        self.try_ctr("container", "delete", container)

    def containers(self) -> list[str]:
        return self.ctr("container", "list", "--quiet").split()

    def clear(self) -> None:
        """Removes every container."""
        for left in self.containers():
            self.remove(left)


@contextmanager
def running(
    name: str = "ctd",
    *,
    images: Sequence[Path] = (IMAGE_ARCHIVE,),
    namespace: str | None = None,
    plugins: Callable[[Path], str] | None = None,
    path: Callable[[Path], Path] | None = None,
) -> Iterator[Containerd]:
    """A containerd with these images loaded into `namespace`. Its containers are removed at the end.

    plugins: more of its configuration, with the CRI plugin on; path: what goes first on its PATH; both are
    asked with its home, which exists.
    """
    with engine_home(name) as home:
        config = home / "config.toml"
        told = plugins(home) if plugins else ""
        version = 2 if major() < 2 else 3
        head = "" if plugins else NO_CRI
        config.write_text(_CONFIG.format(version=version, home=home, head=head, plugins=told))
        env = {"TMPDIR": os.fspath(home)}
        if path:
            env["PATH"] = f"{path(home)}:{os.environ['PATH']}"
        service = Service(
            lambda: daemon(
                ["containerd", "--config", config],
                log=home / "containerd.log",
                ready=lambda: answers(home / "c.sock"),
                env=env,
            )
        )
        containerd = Containerd(home, namespace or home.name, service)
        with service:
            for image in images:
                containerd.ctr("image", "import", image, timeout_s=120)
            try:
                yield containerd
            finally:
                containerd.clear()


def answers(address: Path) -> bool:
    """Whether a server accepts connections there."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(os.fspath(address)) == 0
