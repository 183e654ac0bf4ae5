"""Fuzzers beside whatever else runs: `python -m tests.fuzz.beside FOLDER SECONDS NAME...`

As many at a time as there are processors, in the time that nobody else wants. What each found lies in FOLDER
as it ends.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from tests.fuzz import targets
from tests.fuzz.targets import REPOSITORY, TARGETS, Found, Target

SECONDS = int(os.environ.get("FUZZ_SECONDS", "120"))

_LOOK_S = 0.1


def _path(folder: Path, name: str) -> Path:
    return folder / f"{name}.json"


def _write(folder: Path, target: Target, seconds: int) -> None:
    try:
        found = targets.run(target, seconds)
    except (AssertionError, OSError, subprocess.SubprocessError) as error:
        found = Found(1, 0, None, str(error))
    whole = _path(folder, target.name)
    part = whole.with_suffix(".part")
    part.write_text(json.dumps(asdict(found), default=str))
    part.replace(whole)


class Beside:
    """The process that runs them, which has a process group of its own."""

    def __init__(self, folder: Path, names: Sequence[str], seconds: int) -> None:
        self._folder = folder
        for name in names:
            _path(folder, name).unlink(missing_ok=True)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.beside", str(folder), str(seconds), *names],
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            process_group=0,
        )

    def found(self, name: str) -> Found:
        """Waits for it. AssertionError when they have all ended without it."""
        while not (path := _path(self._folder, name)).exists():
            ended = self._process.poll() is not None
            assert not ended or path.exists(), f"the fuzzers ended with status {self._process.returncode}"
            time.sleep(_LOOK_S)
        said = json.loads(path.read_text())
        return Found(
            said["status"], said["tried"], said["artifact"] and Path(said["artifact"]), said["said"]
        )

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@contextmanager
def beside(folder: Path, names: Sequence[str], seconds: int) -> Iterator[Beside]:
    """Ends those that still run."""
    folder.mkdir(parents=True, exist_ok=True)
    running = Beside(folder, names, seconds)
    try:
        yield running
    finally:
        running.end()


def main() -> None:
    folder, seconds, names = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for target in TARGETS:
            if target.name in names:
                pool.submit(_write, folder, target, seconds)


if __name__ == "__main__":
    main()
