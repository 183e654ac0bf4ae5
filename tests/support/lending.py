"""Containers of online and offline on one card, where offline holds memory that online was granted."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.arbiter import Arbiter, Json
from tests.support.bundle import Bundle, bundle
from tests.support.programs import Programs, inside
from tests.support.started import Foreground
from tests.support.waiting import until

# A node.toml.
LENDS = "offline_overcommit = true\nrestore_hold_ms = 20\n"
CARD_MIB = 16160
ONLINE = {"mgpu.dev/memory-mib": str(CARD_MIB)}
# A context takes some 200 MiB: what online fills leaves no room for an offline one.
OFFLINE = {"mgpu.dev/memory-mib": "640", "mgpu.dev/qos": "offline", "mgpu.dev/memory-reclaimable": "true"}
LENT_MIB = 64
FILL_MIB = CARD_MIB - 240
KEEPER = (inside("keeper"), str(LENT_MIB))


def holder(mib: int = FILL_MIB, seconds: int | None = None) -> tuple[str, ...]:
    """Allocates in one call, prints "held RESULT", and keeps it: for ever or for so long."""
    return inside("hold"), str(mib), "1", *(() if seconds is None else (str(seconds),))


class Running:
    """One container in the foreground."""

    def __init__(self, mgpu: Arbiter, made: Bundle, program: Foreground) -> None:
        self.mgpu = mgpu
        self.bundle = made
        self.program = program

    @property
    def row(self) -> Json:
        """As mgpud lists it."""
        [row] = [row for row in self.mgpu.containers() if row["container_id"] == self.bundle.container]
        return row

    @property
    def reclaim(self) -> str:
        return str(self.row["reclaim"]["state"])

    def until(self, state: str) -> None:
        until(lambda: self.reclaim == state, f"{self.bundle.container} is {state}")

    def call(self, verb: str, *args: str | Path) -> str:
        return self.bundle.call(self.mgpu.runtime, verb, self.bundle.container, *args)


@contextmanager
def running(mgpu: Arbiter, made: Bundle) -> Iterator[Running]:
    with made.running(mgpu.runtime) as program:
        try:
            yield Running(mgpu, made, program)
        finally:
            subprocess.run(made.argv(mgpu.runtime, "delete", "--force", made.container), check=False)


@contextmanager
def started(mgpu: Arbiter, built: Programs, annotations: dict[str, str], *command: str) -> Iterator[Running]:
    with bundle(*command, annotations=annotations, mounts=[built.oci_mount]) as made:
        with running(mgpu, made) as one:
            yield one


@contextmanager
def keeper(mgpu: Arbiter, built: Programs, *more: str) -> Iterator[Running]:
    """An offline container whose data is on the card. more: its number of processes."""
    with started(mgpu, built, OFFLINE, *KEEPER, *more) as made:
        assert made.program.line() == "up"
        yield made


@contextmanager
def taker(mgpu: Arbiter, built: Programs, mib: int = FILL_MIB, cap_mib: int = CARD_MIB) -> Iterator[Running]:
    """An online container that takes so much, and gives it back, when it is told."""
    annotations = {"mgpu.dev/memory-mib": str(cap_mib)}
    with started(mgpu, built, annotations, inside("taker"), str(mib)) as made:
        assert made.program.line() == "up"
        yield made


def turn(made: Running) -> int:
    """Has a taker take or give; microseconds that this took."""
    made.program.tell()
    what, result, took_us = made.program.line().split()
    assert result == "0", f"{what}: CUDA error {result}"
    return int(took_us)


def rounds(made: Running) -> int:
    """How often it has found its data right, once more included."""
    made.program.tell()
    name, _, number = made.program.line().partition(" ")
    assert name == "rounds", f"{name} {number}"
    return int(number)
