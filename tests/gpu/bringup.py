"""The run: a process and a time of its own for each stage, which goes on after whatever one of them does."""

import argparse
import multiprocessing
import os
import re
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from native_sched.daemon.node.state import NodeState
from tests.gpu.backend import Nvidia, Simulated
from tests.gpu.product import Product, usable_runtime
from tests.gpu.results import Result, Results
from tests.gpu.stage import CannotSayError, Stage, Where
from tests.gpu.stages import PART_S, PARTS, STARTS

LEAST_S = 5
Arguments = tuple[Any, ...]


class Run:
    """What is left of a part's time, and what was found."""

    def __init__(self, out: Path, only: list[str]) -> None:
        self.out = out
        self.results = Results(out)
        self._only = only
        self._begin = time.monotonic()

    def next_part(self) -> None:
        self._begin = time.monotonic()

    def chosen(self, name: str) -> bool:
        """By the beginning of its name; E2 does not begin E20."""
        return not self._only or any(re.match(rf"{re.escape(one)}(?!\d)", name) for one in self._only)

    def each(self, name: str, limit_s: int, do: Callable[[Result], None]) -> None:
        """One result, by a process that cannot hold up the others: killed with all it started at its
        limit."""
        left = PART_S - (time.monotonic() - self._begin)
        result = Result(name)
        if left < LEAST_S:
            result.verdict = "skipped: the time for this part is used up"
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
    except CannotSayError as error:
        result.verdict = f"cannot be said here: {error}"
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


class World:
    """What stages work on, one thing at a time: an mgpud and our own supervisor would look at each other's
    programs.
    """

    def __init__(self, run: Run, driver: str, folder: Path, plain: bool) -> None:
        self._run, self._driver, self._folder, self._plain = run, driver, folder, plain
        self._stack = ExitStack()
        self._there: tuple[Where, Arguments | None] | None = None
        self._told: set[str] = set()

    def close(self) -> None:
        self._stack.close()
        self._there = None

    def arguments(self, where: Where) -> Arguments | None:
        """What a stage there gets before its result; None: it is not to be had, which a result has said."""
        if self._there is None or self._there[0] is not where:
            self.close()
            self._there = where, self._entered(where)
        return self._there[1]

    def _entered(self, where: Where) -> Arguments | None:
        results = self._run.results
        if where is Where.MACHINE:
            return (results,)
        if where is Where.DRIVER:
            return self._stack.enter_context(_backend(self._driver, self._folder)), results
        started = Result(STARTS[where])
        begin = time.monotonic()
        product = None
        try:
            product = self._started(where, started)
        except Exception as error:
            started.verdict = f"failed: {error}"
            started.notes = traceback.format_exc()[-2000:]
        started.seconds = time.monotonic() - begin
        # mgpu starts more than once in a part: what it says the first time is enough, unless it fails later.
        if product is None or started.experiment not in self._told:
            self._told.add(started.experiment)
            results.add(started)
        return (product, results) if product else None

    def _started(self, where: Where, out: Result) -> Product:
        folder = self._folder / where.name.lower()
        folder.mkdir(exist_ok=True)
        runtime, why = (None, "--plain") if self._plain else usable_runtime(folder)
        # Below the product: a log that it still writes is whole then.
        self._stack.callback(self._keep_logs, folder)
        product = Product(
            self._driver,
            folder,
            runtime=runtime,
            schedule=where is not Where.UNSCHEDULED,
            blind=where is Where.BLIND,
            lends=where is Where.LENDS,
        )
        self._stack.enter_context(product)
        # contexts: what mgpud has measured; E6 has the same from outside.
        out.figures = {
            "runtime": why,
            "health": product.ask("health"),
            "contexts": NodeState(str(product.state.path / "node-state.json")).now.contexts,
        }
        out.verdict = "serves in containers" if runtime else "serves plain processes under the filter"
        return product

    def _keep_logs(self, folder: Path) -> None:
        for log in folder.glob("*.log"):
            with open(self._run.out / f"{folder.name}-{log.name}", "ab") as kept:
                kept.write(log.read_bytes())
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _backend(driver: str, folder: Path) -> Iterator[Nvidia | Simulated]:
    if driver == "nvidia":
        yield Nvidia()
        return
    card = Simulated(folder / "card")
    try:
        yield card
    finally:
        card.close()


def part(run: Run, world: World, stages: tuple[Stage, ...]) -> None:
    run.next_part()
    for stage in stages:
        if not run.chosen(stage.name):
            continue
        arguments = world.arguments(stage.where)
        if arguments is None:
            run.results.add(Result(stage.name, "skipped: mgpu does not start"))
            continue
        run.each(stage.name, stage.limit_s, partial(stage.do, *arguments))
    world.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="bringup.sh", description=__doc__)
    parser.add_argument("out", type=Path, help="where results.json and log.txt go")
    parser.add_argument(
        "--part", choices=PARTS, action="append", help=f"at most {PART_S} s; all of them without it"
    )
    parser.add_argument("--sim", action="store_true", help="simulated cards in place of NVIDIA's")
    parser.add_argument("--plain", action="store_true", help="no containers, though they could be made")
    parser.add_argument("--only", nargs="*", default=[], help="only these, by the beginning of their names")
    arguments = parser.parse_args()
    run = Run(arguments.out.absolute(), arguments.only)
    folder = Path("/run") / f"mgpu-gpu-{os.getpid()}"
    folder.mkdir()
    driver = "sim" if arguments.sim else "nvidia"
    world = World(run, driver, folder, arguments.plain)
    # Keeps the cards initialised between programs, as a persistence daemon would, and no setting with it.
    kept = [os.open(node, os.O_RDWR | os.O_CLOEXEC) for node in Path("/dev").glob("nvidia*") if driver == "nvidia"
            and node.name[6:].replace("ctl", "0").isdigit()]  # fmt: skip
    try:
        absent = driver == "nvidia" and not Nvidia().present()
        for name in arguments.part or PARTS:
            stages = PARTS[name]
            part(
                run, world, tuple(one for one in stages if one.where is Where.MACHINE) if absent else stages
            )
        if absent:
            run.results.add(Result("card", "no GPU", notes="/dev/nvidiactl is missing"))
    finally:
        world.close()
        for fd in kept:
            os.close(fd)
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(run.results.found)} results in {run.out / 'results.json'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
