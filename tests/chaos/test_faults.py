"""Faults of all kinds, by chance, for as long as you say: containers go on, memory gives way, and health says
what a container would get.
"""

import os
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from enum import Enum, auto
from functools import partial
from pathlib import Path

import pytest

from oci_specs import paths
from oci_specs.refusal import Refusal
from tests.chaos import faults
from tests.chaos import field as fields
from tests.chaos.faults import Node
from tests.chaos.field import Field, end, field_of, percentile
from tests.chaos.online import Online
from tests.chaos.witness import Witness
from tests.support import host
from tests.support.commands import run
from tests.support.lending import CARD_MIB, FILL_MIB, KEEPER, OFFLINE, rounds, started
from tests.support.programs import MOVED_CLOCK, Programs, inside
from tests.support.waiting import until

# How long it goes on: `make chaos SECONDS=...`. `make test` judges a change by the same faults each time.
TOLD_SECONDS = os.environ.get("MGPU_CHAOS_SECONDS")
SECONDS, SEED = (float(TOLD_SECONDS), None) if TOLD_SECONDS else (50.0, 26)
EVERY_S, LASTS_S = 5.0, 8.0
TENANTS, RUN_MIB = 4, 96
# From the end of a fault until the node is as before.
MENDED_S = 30.0
LENT_CARD = 1
# What is evicted again at once comes back at once: online gives for a moment only.
CONFIG = """offline_overcommit = true
restore_hold_ms = 1
hold_ms = 100
evict_wait_ms = 60000
evict_drain_ms = 30000
"""


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


class Stops(Enum):
    """For how long mgpu itself is stopped, so that a call may wait: not at all, until mgpud serves again, or
    until the fault is over and mended. Who stops the holder keeps the next mgpud away, if this one ends.
    """

    NEVER = auto()
    NEXT_MGPUD = auto()
    UNTIL_SERVED = auto()
    WHILE_IT_LASTS = auto()


# That, and how often each is chosen.
FAULTS: dict[str, tuple[Callable[[Node], AbstractContextManager[None]], Stops, int]] = {
    "mgpud killed": (kills("mgpud"), Stops.UNTIL_SERVED, 2),
    "holder killed": (kills("holder"), Stops.NEVER, 2),
    "both killed": (kills("holder", "mgpud"), Stops.UNTIL_SERVED, 2),
    "standby and mgpud killed": (kills("standby", "mgpud"), Stops.UNTIL_SERVED, 1),
    "helper killed": (kills("/mgpu-checkpoint"), Stops.NEVER, 3),
    "watch killed": (kills("containerd_api.watch"), Stops.NEVER, 1),
    "mgpud stopped": (stop("mgpud"), Stops.WHILE_IT_LASTS, 2),
    "holder stopped": (stop("holder"), Stops.NEXT_MGPUD, 2),
    "standby stopped": (stop("standby"), Stops.NEVER, 1),
    "helper stopped": (stop("/mgpu-checkpoint"), Stops.WHILE_IT_LASTS, 1),
    "mgpud starved": (faults.starved, Stops.WHILE_IT_LASTS, 2),
    "run full": (faults.full, Stops.WHILE_IT_LASTS, 2),
    "run without files": (faults.without_files, Stops.WHILE_IT_LASTS, 1),
    "run read-only": (lambda node: faults.read_only(node.mgpu.root), Stops.WHILE_IT_LASTS, 2),
    "socket removed": (faults.socket_removed, Stops.NEVER, 4),
    "file removed": (faults.file_removed, Stops.WHILE_IT_LASTS, 5),
    "clock moved": (faults.jumped, Stops.NEVER, 3),
}
# Beside what lasts: what is killed while it does.
BESIDE = "mgpud killed", "helper killed", "standby and mgpud killed", "clock moved"


class Run:
    """The faults, one after the other."""

    def __init__(self, field: Field, node: Node, witness: Witness, online: Online) -> None:
        self.field, self.node, self.witness, self.online = field, node, witness, online
        self.done: Counter[str] = Counter()
        self.mended_s: list[float] = []

    def one(self) -> None:
        names = list(FAULTS)
        [name] = self.node.random.choices(names, [FAULTS[name][2] for name in names])
        other = self.node.random.choice(BESIDE) if self.node.random.random() < 0.3 else None
        said = name if other is None else f"{name} and {other}"
        self.done[name] += 1
        print(f"{time.monotonic():.1f} {said}", flush=True)
        lasting: list[float] = []
        with ExitStack() as both:
            for each in (name,) if other is None else (name, other):
                self.witness.change(said)
                lasting += self._begin(both, each, after=name)
                self.witness.change(said)
                time.sleep(self.node.random.random() * LASTS_S)
            self.witness.change(f"{said}, ending")
        self.witness.change(f"what followed {said}")
        over_s = time.monotonic()
        self._mended(said)
        self.mended_s.append(time.monotonic() - over_s)
        if lasting:
            self.online.stalls.append((lasting[0], time.monotonic()))
        self.field.well()
        self.field.over_cap()
        self.witness.check()
        self.online.undisturbed()
        self.witness.change()

    def _begin(self, both: ExitStack, name: str, after: str) -> list[float]:
        """When that was, if mgpu is stopped until it is mended. after: the first of two faults."""
        act, stops, _ = FAULTS[name]
        began_s = time.monotonic()
        both.enter_context(act(self.node))
        if stops is Stops.UNTIL_SERVED and FAULTS[after][1] not in (Stops.NEXT_MGPUD, Stops.WHILE_IT_LASTS):
            until(self._serves, "the next mgpud serves")
            self.online.stalls.append((began_s, time.monotonic()))
            return []
        return [began_s] if stops in (Stops.UNTIL_SERVED, Stops.WHILE_IT_LASTS) else []

    def _serves(self) -> bool:
        with suppress(Refusal):
            return bool(self.node.mgpu.containers())
        return False

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

    def report(self) -> str:
        calls = sorted(one.took_s for one in self.online.calls)
        mended = sorted(self.mended_s)
        return "\n".join(
            (
                f"{sum(self.done.values())} faults: {dict(sorted(self.done.items()))}",
                f"probes: {dict(self.witness.seen)}",
                *(f"  {count} x {said}" for said, count in self.witness.refusals.items()),
                f"mended after p50 {percentile(mended, 50):.1f} s, longest {mended[-1]:.1f} s",
                f"{len(calls)} online calls, p50 {percentile(calls, 50) * 1e3:.0f} ms, "
                f"p99 {percentile(calls, 99) * 1e3:.0f} ms, longest {calls[-1]:.1f} s",
                self.online.judge(),
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
                config=CONFIG,
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
        second = {"mgpu.dev/gpus": field.mgpu.listing()["cards"][LENT_CARD]["uuid"]}
        online = {"mgpu.dev/memory-mib": str(CARD_MIB), **second}
        with (
            started(field.mgpu, built, {**OFFLINE, **second}, *KEEPER, "2") as keeper,
            started(field.mgpu, built, online, inside("taker"), str(FILL_MIB)) as taker,
        ):
            assert keeper.program.line() == taker.program.line() == "up"
            with Online(taker, LENT_CARD) as calls, Witness(field.mgpu, EVERY_S) as witness:
                done = Run(field, Node(field.mgpu, clock, field.random), witness, calls)
                end_s = time.monotonic() + SECONDS
                while time.monotonic() < end_s:
                    done.one()
            until(lambda: keeper.reclaim == "running", "it is back")
            assert rounds(keeper)
            print(done.report())
        field.judge()
