"""Faults of all kinds, by chance, for as long as you say: containers go on, memory gives way, and health says
what a container would get.
"""

import os
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from oci_specs import paths
from tests.chaos import faults
from tests.chaos import field as fields
from tests.chaos.beside import Beside
from tests.chaos.faults import Node
from tests.chaos.field import Field, end, field_of, percentile
from tests.chaos.witness import Witness
from tests.support import host
from tests.support.commands import run
from tests.support.lending import CARD_MIB, FILL_MIB, KEEPER, LENDS, OFFLINE, Running, rounds, started
from tests.support.programs import MOVED_CLOCK, Programs, inside
from tests.support.waiting import until

# How long it goes on: `make chaos SECONDS=...`. `make test` judges a change by the same faults each time.
TOLD_SECONDS = os.environ.get("MGPU_CHAOS_SECONDS")
SECONDS, SEED = (float(TOLD_SECONDS), None) if TOLD_SECONDS else (50.0, 26)
EVERY_S, LASTS_S = 5.0, 8.0
TENANTS, RUN_MIB = 4, 96
# From the end of a fault until the node is as before.
MENDED_S = 30.0
# A container's copies take some 200 ms. A call that waits for them waits for no more than this, on a machine
# that does other things too.
ONLINE_S = 10.0
OUT_OF_MEMORY = 2


def stop(program: str) -> Callable[[Node], AbstractContextManager[None]]:
    return partial(faults.stopped, program=program)


def kills(*programs: str) -> Callable[[Node], AbstractContextManager[None]]:
    @contextmanager
    def killed(node: Node) -> Iterator[None]:
        for program in programs:
            for pid in node.pids(program):
                with suppress(ProcessLookupError):
                    end(pid)
        yield

    return killed


# Whether an online call may wait meanwhile, and how often it is chosen.
FAULTS: dict[str, tuple[Callable[[Node], AbstractContextManager[None]], bool, int]] = {
    "mgpud killed": (kills("mgpud"), True, 2),
    "holder killed": (kills("holder"), True, 2),
    "both killed": (kills("holder", "mgpud"), True, 2),
    "standby and mgpud killed": (kills("standby", "mgpud"), True, 1),
    "helper killed": (kills("/mgpu-checkpoint"), False, 3),
    "watch killed": (kills("containerd_api.watch"), False, 1),
    "mgpud stopped": (stop("mgpud"), True, 2),
    "holder stopped": (stop("holder"), False, 2),
    "standby stopped": (stop("standby"), False, 1),
    "helper stopped": (stop("/mgpu-checkpoint"), True, 1),
    "mgpud starved": (faults.starved, True, 2),
    "run full": (faults.full, True, 2),
    "run without files": (faults.without_files, True, 1),
    "run read-only": (lambda node: faults.read_only(node.mgpu.root), True, 2),
    "socket removed": (faults.socket_removed, False, 4),
    "file removed": (faults.file_removed, True, 5),
    "clock moved": (faults.jumped, False, 3),
}
# Beside what lasts: what is killed while it does.
BESIDE = "mgpud killed", "helper killed", "standby and mgpud killed", "clock moved"


class Online(Beside):
    """A container that takes all of a card, and gives it back, all the time."""

    def __init__(self, made: Running) -> None:
        super().__init__()
        self._made = made
        self.turns: list[tuple[str, int, float, float]] = []

    def go_on(self) -> None:
        while not self._end.wait(0.3):
            self._turn()
        if self.turns and self.turns[-1][:2] == ("took", 0):
            self._turn()

    def _turn(self) -> None:
        began_s = time.monotonic()
        self._made.program.tell()
        what, result, _ = self._made.program.line().split()
        self.turns.append((what, int(result), began_s, time.monotonic()))


class Run:
    """The faults, one after the other. stalls: when calls of online may have waited, by CLOCK_MONOTONIC."""

    def __init__(self, field: Field, node: Node, witness: Witness, online: Online) -> None:
        self.field, self.node, self.witness, self.online = field, node, witness, online
        self.stalls: list[tuple[float, float]] = []
        self.done: Counter[str] = Counter()
        self.mended_s: list[float] = []
        self._looked = 0
        self.longest_s = 0.0

    def one(self) -> None:
        names = list(FAULTS)
        [name] = self.node.random.choices(names, [FAULTS[name][2] for name in names])
        other = self.node.random.choice(BESIDE) if self.node.random.random() < 0.3 else None
        act, stalls, _ = FAULTS[name]
        said = name if other is None else f"{name} and {other}"
        self.done[name] += 1
        began_s = time.monotonic()
        print(f"{began_s:.1f} {said}", flush=True)
        self.witness.change(said)
        with act(self.node):
            self.witness.change(said)
            time.sleep(self.node.random.random() * LASTS_S)
            with ExitStack() as both:
                if other is not None:
                    self.witness.change(said)
                    both.enter_context(FAULTS[other][0](self.node))
                    self.witness.change(said)
                    time.sleep(self.node.random.random() * LASTS_S)
            self.witness.change(f"{said}, ending")
        self.witness.change(f"what followed {said}")
        over_s = time.monotonic()
        self._mended(said)
        self.mended_s.append(time.monotonic() - over_s)
        if stalls or (other is not None and FAULTS[other][1]):
            self.stalls.append((began_s, time.monotonic()))
        self.field.well()
        self.field.over_cap()
        self.witness.check()
        self._held(said)
        self.witness.change()

    def _mended(self, said: str) -> None:
        """Nobody waits for what could go on, and health says so."""
        self.field.mark()
        now_ns = time.monotonic_ns()
        red: list[str] = []

        def well() -> bool:
            red[:] = self.witness.red()
            return not red

        try:
            until(well, f"health is green again after {said}", timeout_s=MENDED_S, poll_s=0.2)
        except AssertionError as error:
            raise AssertionError(f"{error}: {red}") from None
        self.field.all_answered(now_ns, MENDED_S)

    def _held(self, said: str) -> None:
        """No online call waits longer than it may."""
        self.online.check()
        for what, result, began_s, ended_s in self.online.turns[self._looked :]:
            stalled_s = sum(max(0.0, min(ended_s, b) - max(began_s, a)) for a, b in self.stalls)
            held_s = ended_s - began_s - stalled_s
            self.longest_s = max(self.longest_s, held_s)
            assert held_s < ONLINE_S, f"{what} took {ended_s - began_s:.1f} s beside {said}"
            assert result == 0 or (result == OUT_OF_MEMORY and stalled_s), f"{what} {result} beside {said}"
            self._looked += 1

    def report(self) -> str:
        turns = sorted(ended - began for _, _, began, ended in self.online.turns)
        mended = sorted(self.mended_s)
        return "\n".join(
            (
                f"{sum(self.done.values())} faults: {dict(sorted(self.done.items()))}",
                f"probes: {dict(self.witness.seen)}",
                *(f"  {count} x {said}" for said, count in self.witness.refusals.items()),
                f"mended after p50 {percentile(mended, 50):.1f} s, longest {mended[-1]:.1f} s",
                f"{len(turns)} online turns, p50 {percentile(turns, 50) * 1e3:.0f} ms, "
                f"p99 {percentile(turns, 99) * 1e3:.0f} ms, longest {turns[-1]:.1f} s, "
                f"{self.longest_s:.1f} s beside no fault that stops mgpu",
                self.field.report(),
            )
        )


@contextmanager
def node(built: Programs, chosen: int) -> Iterator[tuple[Field, Path]]:
    """Its programs lie in memory, so that they can be removed, and so does its folder, which can be full."""
    with (
        host.own(Path(paths.libexec("")), Path(paths.lib("sim"))),
        host.home("small") as folder,
        host.home("clock") as times,
    ):
        (times / "clock").write_bytes(struct.pack("=d", 0.0))
        env = {
            "LD_PRELOAD": f"{os.environ.get('LD_PRELOAD', '')} {built.folder / MOVED_CLOCK}".strip(),
            "MGPU_TEST_CLOCK": str(times / "clock"),
        }
        run("mount", "-t", "tmpfs", "-o", f"size={RUN_MIB}m,mode=0700", "tmpfs", folder)
        try:
            with field_of(
                built,
                TENANTS,
                chosen,
                cards="v100-16:2",
                config=LENDS + "hold_ms = 100\nevict_wait_ms = 60000\n",
                sim_options=["copy-mib-per-ms=2"],
                root=folder / "r",
                env=env,
            ) as field:
                yield field, times / "clock"
        finally:
            run("umount", "-l", folder)


@pytest.mark.timeout(int(SECONDS * 2) + 240)
def test_no_fault_loses_a_container_and_health_says_what_starts(built: Programs) -> None:
    chosen = fields.seed(SEED)
    with node(built, chosen) as (field, clock):
        second = {"mgpu.dev/gpus": field.mgpu.listing()["cards"][1]["uuid"]}
        online = {"mgpu.dev/memory-mib": str(CARD_MIB), **second}
        with (
            started(field.mgpu, built, {**OFFLINE, **second}, *KEEPER, "2") as keeper,
            started(field.mgpu, built, online, inside("taker"), str(FILL_MIB)) as taker,
        ):
            assert keeper.program.line() == taker.program.line() == "up"
            with Online(taker) as turns, Witness(field.mgpu, EVERY_S) as witness:
                done = Run(field, Node(field.mgpu, clock, field.random), witness, turns)
                end_s = time.monotonic() + SECONDS
                while time.monotonic() < end_s:
                    done.one()
            until(lambda: keeper.reclaim == "running", "it is back")
            assert rounds(keeper)
            print(done.report())
        field.judge()
