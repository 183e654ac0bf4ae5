"""CUDA's process checkpoints: whether a program's memory goes to the host and comes back, and what the driver
is asked for meanwhile.
"""

import json
import os
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from oci_specs import paths
from tests.gpu import first, rm
from tests.gpu.backend import Backend
from tests.gpu.calls import Recorded, failed, preloaded, recording, slowest
from tests.gpu.experiments import used_mib
from tests.gpu.product import Product, environment
from tests.gpu.results import Result, Results
from tests.gpu.supervise import Supervised

START_S, SETTLED_S = 20.0, 1.0
STEPS = ("lock {} 5000", "checkpoint {}", "restore {}", "unlock {}")
STATES = ["locked", "checkpointed", "locked", "running"]
PASSES = "moved away and back"
# A container's own, which is seen from outside by the folder of its process.
TMP = "/tmp"
Answer = dict[str, str]


def words(driver: str) -> tuple[tuple[str, ...], int]:
    """A program's steps, and the MiB that it keeps. A simulated card's bytes are moved by the processor."""
    mib = 512 if driver == "nvidia" else 64
    return ("init", "context", f"keep={mib}", "moved=25", "same", "copy=16", "destroy"), mib


@contextmanager
def helper(driver: str, sim: dict[str, str]) -> Iterator[Callable[[str], Answer]]:
    """Answers of mgpu-checkpoint with the driver's libcuda. sim: where a simulated card's is."""
    libcuda = paths.lib("sim/libcuda.so.1") if driver == "sim" else "libcuda.so.1"
    argv = [paths.libexec("mgpu-checkpoint"), "--libcuda", str(libcuda)]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **sim}
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        to, answers = process.stdin, process.stdout

        def ask(line: str) -> Answer:
            to.write(line + "\n")
            to.flush()
            said = answers.readline()
            found: Answer = json.loads(said) if said else {"error": "mgpu-checkpoint does not start"}
            return found

        try:
            yield ask
        finally:
            process.kill()


def move(
    ask: Callable[[str], Answer], pid: int, out: Result, look: Callable[[], object]
) -> list[str | None]:
    """The states that the process came to; figures have what each step took, and what look() says then."""
    states = []
    for step in STEPS:
        begin = time.monotonic()
        answer = ask(step.format(pid))
        took = round((time.monotonic() - begin) * 1000, 3)
        out.figures[step.split()[0]] = {**answer, "ms": took, "then": look()}
        states.append(answer.get("state"))
        if "error" in answer:
            break
    return states


def until(seen: Callable[[], bool]) -> bool:
    end = time.monotonic() + START_S
    while not seen() and time.monotonic() < end:
        time.sleep(0.05)
    return seen()


def natively(backend: Backend, results: Results, out: Result) -> None:
    """Without mgpu: the calls of each step, by a census, and what the card holds after it."""
    does, kept_mib = words(backend.name)
    with (
        Supervised(backend, first.steps(*does)) as program,
        helper(backend.name, backend.environment()) as ask,
    ):
        before: Counter[str] = Counter()

        def look() -> dict[str, object]:
            calls = dict(sorted((program.census.seen - before).items()))
            before.update(calls)
            return {"calls": calls, "used_mib": used_mib(backend)}

        until(lambda: sum(made.bytes for made in program.by_class(rm.MEMORY)) >= kept_mib << 20)
        time.sleep(SETTLED_S)
        out.figures["start"] = look()
        states = move(ask, program.process.pid, out, look)
        said = first.said(program.output(START_S))
    out.figures["steps"] = said
    same = [step.get("same") for step in said if step["step"] == "same"]
    results.log(f"checkpoint natively: {out.figures}")
    out.verdict = PASSES if (states, same) == (STATES, [True]) else f"{states}, same: {same}"


def inside(product: Product, results: Results, out: Result) -> None:
    """Under mgpu: whether its rows let each step pass, and what the ledger counts after it. Where that fails,
    once more with all calls written down, and natively for comparison.
    """
    try:
        _moves(product, results, out)
    finally:
        # On simulated cards always, to see that it is done.
        if out.verdict != PASSES or product.driver == "sim":
            out.figures["recorded"] = _recorded(product, results)


def _moves(product: Product, results: Results, out: Result, calls: "Calls | None" = None) -> None:
    does, kept_mib = words(product.driver)
    argv = preloaded(first.steps(*does), TMP) if calls else first.steps(*does)

    def ledger_mib() -> int:
        return sum(int(card["used_bytes"]) >> 20 for card in product.ask("list")["cards"])

    with (
        product.container(argv, memory_mib=first.CAP_MIB) as box,
        helper(product.driver, environment(product.driver) | (calls.helper if calls else {})) as ask,
    ):
        until(lambda: ledger_mib() >= kept_mib)
        time.sleep(SETTLED_S)  # its memory is filled, and it waits to be moved
        [pid] = [int(row["pid"]) for row in product.containers() if row["container_id"] == box.name]
        if calls:
            calls.begin(pid)
        states = move(
            ask, pid, out, lambda: {**calls.look(), "ledger_mib": ledger_mib()} if calls else ledger_mib()
        )
        if states != STATES:
            # It would wait for more.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        found = first.does_on(box.end(), does, out, results)
    same = [step.get("same") for step in found if step["step"] == "same"]
    out.figures["while_away"] = out.figures.get("checkpoint", {}).get("then")
    whole = (states, same) == (STATES, [True])
    if states != STATES:
        step = STEPS[len(states) - 1].split()[0]
        out.verdict = f"{step}: {out.figures[step].get('error', states[-1])}"
    elif found:
        out.verdict = PASSES if whole else f"same: {same}"


class Calls:
    """What was asked of the driver in each step, by the program and by what moves it; kept as files."""

    def __init__(self, results: Results, folder: Path, name: str, inside: bool) -> None:
        self._to, self._name, self._inside = results.folder, name, inside
        self._helpers = Path(tempfile.mkdtemp(dir=folder))
        self.helper = recording(self._helpers, at_once=True)
        self.program = Path(tempfile.mkdtemp(dir=folder))
        self._of = {"helper": Recorded(lambda: self._helpers), "program": Recorded(lambda: self.program)}

    def begin(self, pid: int) -> None:
        if self._inside:
            self.program = Path(f"/proc/{pid}/root{TMP}")
        self.look()

    def look(self) -> dict[str, object]:
        """Of each step, how many calls there were, and those that failed."""
        found: dict[str, object] = {}
        for who, recorded in self._of.items():
            calls = recorded.new()
            recorded.keep(self._to, f"{self._name}-{who}")
            found[who] = {"calls": len(calls), "failed": failed(calls), "longest": slowest(calls, 3)}
        return found


def _recorded(product: Product, results: Results) -> dict[str, object]:
    """By where it ran: its figures."""
    found: dict[str, object] = {}
    tries = {"inside": partial(_moves, product, results)}
    if product.driver == "nvidia":
        tries["natively"] = partial(_natively_recorded, results)
    for where, does in tries.items():
        out = Result(where)
        calls = Calls(results, product.folder, f"checkpoint-{where}", where == "inside")
        try:
            does(out, calls)
        except Exception as error:
            out.verdict = f"failed: {error}"
        found[where] = {"verdict": out.verdict, **out.figures}
    return found


def _natively_recorded(results: Results, out: Result, calls: Calls) -> None:
    does, _ = words("nvidia")
    with (
        subprocess.Popen(
            first.steps(*does),
            stdout=subprocess.PIPE,
            text=True,
            env=environment("nvidia") | recording(calls.program),
        ) as process,
        helper("nvidia", environment("nvidia") | calls.helper) as ask,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            if '"keep' in line:
                break
        time.sleep(SETTLED_S)
        calls.begin(process.pid)
        states = move(ask, process.pid, out, calls.look)
        if states != STATES:
            process.kill()
        out.verdict = PASSES if states == STATES else str(states)
