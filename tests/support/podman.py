"""A podman with storage of the tests' own."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.commands import TIMEOUT_S, Done, attempt, run
from tests.support.engine_home import engine_home
from tests.support.places import IMAGE_ARCHIVE

PODMAN_NPROC = 32768


@dataclass(frozen=True)
class Podman:
    """Containers get a cgroup below one with home's name when run with run_options."""

    home: Path

    @property
    def env(self) -> dict[str, str]:
        """Has a plain `podman` use this storage."""
        return {
            "CONTAINERS_STORAGE_CONF": os.fspath(self.home / "storage.conf"),
            "CONTAINERS_CONF": os.fspath(self.home / "containers.conf"),
            "TMPDIR": os.fspath(self.home),
        }

    @property
    def run_options(self) -> tuple[str, ...]:
        return (f"--cgroup-parent=/{self.home.name}",)

    def podman(self, *args: str | Path, timeout_s: float = TIMEOUT_S) -> str:
        """Output of podman; CommandFailedError when it fails. `--runtime PATH` goes first."""
        return run("podman", *args, env=self.env, timeout_s=timeout_s)

    def try_podman(self, *args: str | Path, timeout_s: float = TIMEOUT_S) -> Done:
        return attempt("podman", *args, env=self.env, timeout_s=timeout_s)

    def clear(self) -> None:
        """Removes every container."""
        self.try_podman("rm", "--all", "--force", "--time", "0")


@contextmanager
def running(name: str = "pod") -> Iterator[Podman]:
    """podman with the test image loaded. Its containers are removed at the end."""
    with engine_home(name) as home:
        podman = Podman(home)
        (home / "storage.conf").write_text(
            f'[storage]\ndriver = "overlay"\ngraphroot = "{home}/root"\nrunroot = "{home}/run"\n'
        )
        # static_dir: where podman looks for its database when conmon calls it with --root, after the
        # container's end.
        (home / "containers.conf").write_text(
            f'[containers]\nnetns = "none"\ndefault_ulimits = {_own_limits()}\npids_limit = 0\n'
            '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "none"\n'
            f'static_dir = "{home}/root/libpod"\ntmp_dir = "{home}/tmp"\nvolume_path = "{home}/volumes"\n'
        )
        try:
            podman.podman("load", "--input", IMAGE_ARCHIVE, timeout_s=120)
            yield podman
        finally:
            podman.clear()


def _own_limits() -> list[str]:
    # podman's default is to raise these, which takes CAP_SYS_RESOURCE: root may be without it. It lowers its
    # own number of processes first.
    nofile = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    nproc = min(resource.getrlimit(resource.RLIMIT_NPROC)[1], PODMAN_NPROC)
    return [f"nofile={nofile}:{nofile}", f"nproc={nproc}:{nproc}"]
