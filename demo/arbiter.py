"""`mgpu up` for the demo, and the operator's commands against it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from demo.failure import DemoFailedError
from mgpu_cli.kernel import die_with_parent

MGPU = os.fspath(Path(sys.executable).with_name("mgpu"))
COMMAND_TIMEOUT_S = 20


class Arbiter:
    """Simulated cards and mgpud, up while the context lasts."""

    def __init__(self, root: Path, cards: str) -> None:
        self.root = root
        self.runtime = root / "bin" / "mgpu-runtime"
        self._cards = cards

    def __enter__(self) -> Self:
        if not os.path.exists(MGPU):
            raise DemoFailedError(f"mgpu is not installed beside {sys.executable}: run it with make demo")
        ready, ready_told = os.pipe()
        parent = os.getpid()
        argv = [MGPU, "up", "--sim", self._cards, "--root", str(self.root), "--ready-fd", str(ready_told)]
        self._up = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[ready_told],
            # A group of its own: ^C reaches the demo, which removes the containers first.
            process_group=0,
            preexec_fn=lambda: die_with_parent(signal.SIGTERM, parent),
        )
        os.close(ready_told)
        with open(ready, "rb") as told:
            if told.read() != b"ready\n":
                _, errors = self._up.communicate()
                raise DemoFailedError(f"mgpu up ended: {errors.decode(errors='replace').strip()}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._up.terminate()
        self._up.communicate()

    def mgpu(self, *args: str) -> str:
        """Output of one of the operator's commands."""
        argv = [MGPU, *args, "--root", str(self.root)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=COMMAND_TIMEOUT_S)
        if done.returncode != 0:
            raise DemoFailedError(f"mgpu {' '.join(args)}: {done.stderr.strip()}")
        return done.stdout

    def objects(self, command: str) -> list[dict[str, Any]]:
        """What `mgpu ps` or `mgpu devices` lists, as the control protocol has it."""
        found: list[dict[str, Any]] = json.loads(self.mgpu(command, "-o", "json"))
        return found
