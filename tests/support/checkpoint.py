"""mgpu-checkpoint with the simulated libcuda: what mgpud runs."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from oci_specs import paths

Answer = dict[str, str]


class Checkpoint:
    def __init__(self, libcuda: str) -> None:
        self.process = subprocess.Popen(
            [paths.libexec("mgpu-checkpoint"), "--libcuda", libcuda],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def send(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")

    def read(self) -> Answer:
        assert self.process.stdout is not None
        answer: Answer = json.loads(self.process.stdout.readline())
        return answer

    def __call__(self, line: str) -> str:
        """The state that the process has come to, or the name of the error."""
        self.send(line)
        answer = self.read()
        return answer.get("state") or answer["error"]

    def move_away(self, pid: int) -> None:
        assert self(f"lock {pid} 30000") == "locked"
        assert self(f"checkpoint {pid}") == "checkpointed"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def checkpoint_program(libcuda: str | None = None) -> Iterator[Checkpoint]:
    running = Checkpoint(libcuda or str(paths.lib("sim/libcuda.so.1")))
    with running.process:
        yield running
        running.kill()
