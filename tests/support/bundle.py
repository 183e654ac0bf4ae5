"""OCI bundles for runc and crun without an engine."""

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import host
from tests.support.commands import TIMEOUT_S, CommandFailedError, Done, attempt, run
from tests.support.places import IMAGE_ROOTFS
from tests.support.started import Foreground, foreground

FREEZES, FREEZE_S = 4, 0.5


@dataclass(frozen=True)
class Bundle:
    """A bundle and a place for the runtime's state. Its container is named `container` and is the only
    one."""

    path: Path
    container: str

    @property
    def state(self) -> Path:
        return self.path / "state"

    @property
    def config(self) -> Any:
        return json.loads((self.path / "config.json").read_text())

    def edit(self, change: Callable[[Any], None]) -> None:
        """Let change alter config.json."""
        config = self.config
        change(config)
        (self.path / "config.json").write_text(json.dumps(config))

    def argv(self, runtime: str | Path, verb: str, *args: str | Path) -> list[str | Path]:
        return [runtime, "--root", self.state, verb, *args]

    def run_argv(self, runtime: str | Path, *args: str | Path) -> list[str | Path]:
        """args: further options of run."""
        return self.argv(runtime, "run", "--bundle", self.path, *args, self.container)

    def run(self, runtime: str | Path, *args: str | Path, timeout_s: float = TIMEOUT_S) -> Done:
        """`runtime run` to its end."""
        return attempt(*self.run_argv(runtime, *args), timeout_s=timeout_s)

    def output(self, runtime: str | Path, timeout_s: float = TIMEOUT_S) -> str:
        """What it printed; CommandFailedError if its status is not 0."""
        return run(*self.run_argv(runtime), timeout_s=timeout_s)

    def running(self, runtime: str | Path) -> AbstractContextManager[Foreground]:
        """`runtime run`, which goes on while the test looks at it."""
        return foreground(self.run_argv(runtime))

    def call(self, runtime: str | Path, verb: str, *args: str | Path, freezes: int = FREEZES) -> str:
        """Another verb on the container; CommandFailedError when it fails. runc gives up on a freezer whose
        tasks get no processor within its thousand looks: it is asked again, `freezes` times.
        """
        try:
            return run(*self.argv(runtime, verb, *args))
        except CommandFailedError as failed:
            if not freezes or "unable to freeze" not in str(failed):
                raise
        time.sleep(FREEZE_S)
        return self.call(runtime, verb, *args, freezes=freezes - 1)


@contextmanager
def bundle(
    *command: str,
    annotations: dict[str, str] | None = None,
    env: dict[str, str] | None = None,
    mounts: Sequence[dict[str, Any]] = (),
) -> Iterator[Bundle]:
    """A bundle that runs `command` in a writable view of the test image, in the way of runc's own example
    spec.
    """
    with host.home("oci") as home, host.overlay(IMAGE_ROOTFS, "ovl") as rootfs:
        run("runc", "spec", "--bundle", home)
        made = Bundle(home, home.name)

        def fill(config: Any) -> None:
            config["root"] = {"path": os.fspath(rootfs)}
            config["process"]["terminal"] = False
            config["process"]["args"] = list(command)
            config["process"]["env"] += [f"{key}={value}" for key, value in (env or {}).items()]
            config["mounts"] += mounts
            config["annotations"] = dict(annotations or {})
            config["linux"]["cgroupsPath"] = f"/{home.name}"

        made.edit(fill)
        try:
            yield made
        finally:
            for runtime in ("runc", "crun"):
                attempt(*made.argv(runtime, "delete", "--force", made.container))
            host.remove_cgroups(home.name)
