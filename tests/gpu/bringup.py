"""The run: probe, experiments, the product end to end, hostile attempts. Each in a process and a time of its own."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from native_sched.daemon.node_state import NodeState
from tests.gpu.backend import Backend, Nvidia, Simulated
from tests.gpu.experiments import EXPERIMENTS
from tests.gpu.own_client import NeedsCardError
from tests.gpu.probe import probe
from tests.gpu.product import Product, usable_runtime
from tests.gpu.results import Result, Results
from tests.gpu.stages import STAGES

TOTAL_S = 9 * 60 - 30
LEAST_S = 5


class Run:
    """What is left of the time, and what was found."""

    def __init__(self, out: Path, only: list[str]) -> None:
        self.out = out
        self.results = Results(out)
        self._only = only
        self._begin = time.monotonic()

    def chosen(self, name: str) -> bool:
        return not self._only or any(name.startswith(one) for one in self._only)

    def each(self, name: str, limit_s: int, do: Callable[[Result], None]) -> None:
        """One result, by a process that cannot hold up the others: killed with all it started at its limit."""
        if not self.chosen(name):
            return
        left = TOTAL_S - (time.monotonic() - self._begin)
        result = Result(name)
        if left < LEAST_S:
            result.verdict = "skipped: the time for the run is used up"
            self.results.add(result)
            return
        begin = time.monotonic()
        ours, theirs = multiprocessing.Pipe(False)
        process = multiprocessing.get_context("fork").Process(target=_do, args=(do, result, theirs))
        process.start()
        theirs.close()
        try:
            if ours.poll(min(left, limit_s)):
                result = ours.recv()
            else:
                result.verdict = "timed out"
        except EOFError:
            result.verdict = f"crashed (status {process.exitcode})"
        _kill(process.pid or 0)
        process.join(10)
        result.seconds = time.monotonic() - begin
        self.results.add(result)


def _do(do: Callable[[Result], None], result: Result, to: Connection) -> None:
    os.setpgid(0, 0)
    try:
        do(result)
    except NeedsCardError as error:
        result.verdict = f"not on a simulated card: {error}"
    except Exception as error:
        result.verdict = f"failed: {error}"
        result.notes = traceback.format_exc()[-2000:]
    to.send(result)
    to.close()
    os._exit(0)


def _kill(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def experiments(run: Run, backend: Backend) -> None:
    for name, experiment, limit_s in EXPERIMENTS:
        run.each(name, limit_s, lambda result, do=experiment: do(backend, run.results, result))  # type: ignore[misc]


def product(run: Run, driver: str, folder: Path, plain: bool) -> None:
    """One product for all stages: it has to outlive what each does to it."""
    if not any(run.chosen(name) for name, _, _ in STAGES):
        return
    started = Result("P0 start")
    begin = time.monotonic()
    try:
        runtime, why = (None, "--plain") if plain else usable_runtime(folder)
        with Product(driver, folder, runtime=runtime) as served:
            # contexts: what mgpud has measured; E6 has the same from outside.
            started.figures = {
                "runtime": why,
                "health": served.ask("health"),
                "contexts": NodeState(str(served.state.path / "node-state.json")).now.contexts,
            }
            started.verdict = (
                "serves in containers" if runtime else "serves plain processes under the filter"
            )
            started.seconds = time.monotonic() - begin
            run.results.add(started)
            for name, stage, limit_s in STAGES:
                run.each(name, limit_s, lambda result, do=stage: do(served, run.results, result))  # type: ignore[misc]
    except Exception as error:
        started.verdict = f"failed: {error}"
        started.notes = traceback.format_exc()[-2000:]
        run.results.add(started)
    for log in folder.glob("*.log"):
        shutil.copy(log, run.out / log.name)


def main() -> int:
    parser = argparse.ArgumentParser(prog="bringup.sh", description=__doc__)
    parser.add_argument("out", type=Path, help="where results.json and log.txt go")
    parser.add_argument("--sim", action="store_true", help="a simulated card in place of NVIDIA's")
    parser.add_argument("--plain", action="store_true", help="no containers, though they could be made")
    parser.add_argument("--only", nargs="*", default=[], help="only these, by the beginning of their names")
    arguments = parser.parse_args()
    run = Run(arguments.out.absolute(), arguments.only)
    folder = Path("/run") / f"mgpu-gpu-{os.getpid()}"
    folder.mkdir()
    try:
        run.each("E0 probe", 60, lambda result: probe(run.results, result))
        if arguments.sim:
            card = Simulated(folder / "card")
            try:
                experiments(run, card)
            finally:
                card.close()
            product(run, "sim", folder, arguments.plain)
        elif Nvidia().present():
            # Keeps the card initialised between programs, as a persistence daemon would, and no setting with it.
            kept = [
                os.open(node, os.O_RDWR | os.O_CLOEXEC)
                for node in ("/dev/nvidiactl", "/dev/nvidia0")
                if os.path.exists(node)
            ]
            experiments(run, Nvidia())
            product(run, "nvidia", folder, arguments.plain)
            for fd in kept:
                os.close(fd)
        else:
            run.results.add(Result("card", "no GPU", notes="/dev/nvidiactl is missing"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(run.results.found)} results in {run.out / 'results.json'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
