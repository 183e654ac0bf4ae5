"""A containerd with its own root, state and socket, and containers run on it with ctr."""

import json
import os
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from demo.failure import DemoFailedError
from mgpu_cli.kernel import die_with_parent
from oci_specs import paths

IMAGE = "docker.io/library/mgpu-test:latest"
INSIDE = Path(__file__).with_name("inside")
START_TIMEOUT_S = 30.0
CTR_TIMEOUT_S = 60

CONFIG = """
version = 2
root = "{home}/root"
state = "{home}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "{home}/containerd.sock"
[ttrpc]
  address = "{home}/containerd.sock.ttrpc"
[plugins."io.containerd.internal.v1.opt"]
  path = "{home}/opt"
"""


class Containerd:
    """Runs while the context lasts; the containers in it are removed first."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._socket = home / "containerd.sock"
        self._containers: list[Container] = []

    def __enter__(self) -> Self:
        temporary = self._home / "tmp"
        temporary.mkdir(parents=True)
        config = self._home / "config.toml"
        config.write_text(CONFIG.format(home=self._home))
        parent = os.getpid()
        self._log = self._home / "containerd.log"
        with self._log.open("wb") as log:
            self._daemon = subprocess.Popen(
                ["containerd", "--config", config],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | {"TMPDIR": str(temporary)},
                # A group of its own: ^C reaches the demo, which removes the containers first.
                process_group=0,
                preexec_fn=lambda: die_with_parent(signal.SIGTERM, parent),
            )
        try:
            self._wait()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for container in self._containers:
            container.remove()
        self._stop()

    def import_image(self, archive: Path) -> None:
        self.ctr("image", "import", str(archive))

    def run(self, name: str, request: Sequence[str], runtime: Path) -> "Container":
        """Start the program inside/cuda_caps.py in a container; request is ctr options that ask for a GPU."""
        argv = self.command(name, request, runtime, "python3", "/demo/cuda_caps.py")
        container = Container(self, name, argv)
        self._containers.append(container)
        return container

    def load(
        self, name: str, request: Sequence[str], runtime: Path, shared: Path, *args: str
    ) -> "Container":
        """Start mgpu-load in a container, where the folder `shared` is /shared."""
        mounts = [
            *["--mount", f"type=bind,src={paths.libexec('mgpu-load')},dst=/mgpu-load,options=bind:ro"],
            *["--mount", f"type=bind,src={shared},dst=/shared,options=rbind:rw"],
        ]
        argv = self.command(name, [*mounts, *request], runtime, "/mgpu-load", *args, "-o", "json")
        container = Container(self, name, argv)
        self._containers.append(container)
        return container

    def command(self, name: str, request: Sequence[str], runtime: Path, *program: str) -> list[str]:
        """Arguments of ctr that run a program in the test image, in the foreground."""
        mount = f"type=bind,src={INSIDE},dst=/demo,options=rbind:ro"
        # A cgroup at the top, which goes with the container: ctr's default has a parent that stays.
        cgroup = f"/mgpu-demo-{os.getpid()}-{name}"
        own = ["--runc-binary", str(runtime), "--cgroup", cgroup, "--mount", mount]
        return ["run", "--rm", *own, *request, IMAGE, name, *program]

    def argv(self, *args: str) -> list[str]:
        return ["ctr", "--address", str(self._socket), "--namespace", "demo", *args]

    def ctr(self, *args: str) -> str:
        done = subprocess.run(
            self.argv(*args),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=CTR_TIMEOUT_S,
        )
        if done.returncode != 0:
            raise DemoFailedError(f"ctr {shlex.join(args)}: {done.stderr.strip()}")
        return done.stdout

    def _wait(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self._daemon.poll() is None:
            with socket.socket(socket.AF_UNIX) as probe:
                if probe.connect_ex(os.fspath(self._socket)) == 0:
                    return
            time.sleep(0.05)
        last = self._log.read_text(errors="replace").strip().splitlines()[-1:]
        raise DemoFailedError(f"containerd did not start: {' '.join(last)}")

    def _stop(self) -> None:
        self._daemon.terminate()
        self._daemon.wait()


class Container:
    """A container that runs cuda_caps.py: it reports in JSON lines and goes on when told to."""

    def __init__(self, containerd: Containerd, name: str, args: Sequence[str]) -> None:
        self.name = name
        self._containerd = containerd
        self._ctr = subprocess.Popen(
            containerd.argv(*args),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )

    def report(self) -> list[dict[str, Any]]:
        """The next thing it says, one entry per card; it waits for `go_on` after that."""
        assert self._ctr.stdout is not None
        line = self._ctr.stdout.readline()
        if not line:
            _, errors = self._ctr.communicate()
            raise DemoFailedError(f"the container {self.name} ended: {errors.strip()}")
        cards: list[dict[str, Any]] = json.loads(line)
        return cards

    def go_on(self) -> None:
        assert self._ctr.stdin is not None
        self._ctr.stdin.write("\n")
        self._ctr.stdin.flush()

    def execute(self, *command: str) -> str:
        """Output of a second process in it."""
        number = f"exec-{time.monotonic_ns()}"
        return self._containerd.ctr("task", "exec", "--exec-id", number, self.name, *command)

    def end(self) -> int:
        """Exit status of its program, once that has ended."""
        self._ctr.communicate()
        return self._ctr.returncode

    def result(self) -> dict[str, Any]:
        """What mgpu-load reports when it ends."""
        printed, errors = self._ctr.communicate()
        if self._ctr.returncode != 0:
            raise DemoFailedError(f"the container {self.name} ended: {errors.strip()}")
        found: dict[str, Any] = json.loads(printed.strip().splitlines()[-1])
        return found

    def stop(self) -> dict[str, Any]:
        """SIGTERM, and what it reports then."""
        self._containerd.ctr("task", "kill", "-s", "TERM", self.name)
        return self.result()

    def remove(self) -> None:
        if self._ctr.poll() is None:
            kill = self._containerd.argv("task", "kill", "-s", "KILL", self.name)
            subprocess.run(kill, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            self._ctr.communicate()
