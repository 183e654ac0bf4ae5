"""The start of a recorded libcuda: what mediation adds to it, and what an empty supervisor adds to the same
calls.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from sim import cards
from tests.bench.mediation import one_cpu
from tests.bench.rows import Row, compared
from tests.recordings.script import (
    CONTEXT_ENDS,
    INIT_ENDS,
    RECORDING,
    VERSION,
    Card,
    Composer,
    of_cards,
    recorded,
)
from tests.support import arbiter, host
from tests.support.arbiter import Arbiter
from tests.support.bundle import bundle
from tests.support.commands import run
from tests.support.programs import UNMEDIATED, Programs, inside

TURNS, STARTS = 9, 9
# Starts that take as long as real ones: fewer.
LONG_TURNS, LONG_STARTS = 7, 3
SHARE, WHOLE = {"MGPU_MEMORY_MIB": "4096"}, {"MGPU_GPUS": "1"}
# Of what a supervisor adds that only copies. An empty one cannot be had that close: docs/benchmarks.md.
MOST_OF_COPYING = 1.5
MOST_OF_WHOLE = 1.25
MOST_KINDS = 8
DRIVER = f"driver-version={VERSION}"


@dataclass(frozen=True)
class Times:
    """Of a start, by the rows of the recording."""

    init_us: float
    context_us: float
    call_us: dict[int, float]

    @property
    def start_us(self) -> float:
        return self.init_us + self.context_us


def _times(text: str) -> Times:
    found = json.loads(text)
    return Times(
        found["init_us"],
        found["context_us"],
        {int(row): us for row, us in found["call_us"].items()},
    )


@dataclass(frozen=True)
class _Published:
    """What cuInit and a context took somewhere, with one card and its driver loaded; docs/simulator.md says
    by whom.
    """

    card: str
    init_ms: float
    context_ms: float
    most: float


PUBLISHED = (_Published("a V100", 80, 150, 1.02), _Published("an RTX 5090", 51, 53, 1.04))


@contextmanager
def _script(mgpu: Arbiter) -> Iterator[Path]:
    """With one card, to the end of cuCtxCreate."""
    there = [
        Card(card.gpu_id, bytes.fromhex(card.uuid.removeprefix("GPU-").replace("-", "")))
        for card in cards.cards(mgpu.root / "sim" / "admin.sock")
    ]
    with host.home("rec") as folder:
        lines = Composer(of_cards(recorded(RECORDING), 1), there).lines()
        (folder / "script").write_text("\n".join(lines) + "\n")
        yield folder


def _inside(
    mgpu: Arbiter, built: Programs, folder: Path, starts: int = STARTS, env: dict[str, str] = SHARE
) -> Times:
    mount = {"destination": "/script", "type": "bind", "source": str(folder), "options": ["rbind", "ro"]}
    words = (inside("replay"), "/script/script", str(starts), str(INIT_ENDS), str(CONTEXT_ENDS))
    with bundle(*words, env=env, mounts=[built.oci_mount, mount]) as made:
        return _times(made.output(mgpu.runtime))


def _beside(mgpu: Arbiter, built: Programs, folder: Path, *how: str, starts: int = STARTS) -> Times:
    """On the machine itself, with the card for its driver."""
    env = {
        "LD_PRELOAD": str(built.folder / UNMEDIATED),
        "MGPU_CARD_SOCKET": str(mgpu.root / "sim" / "card.sock"),
        "MGPU_DRIVER_VERSION": VERSION,
    }
    words = (str(folder / "script"), str(starts), str(INIT_ENDS), str(CONTEXT_ENDS), *how)
    return _times(run(built.folder / "replay", *words, env=env))


def measure(built: Programs) -> list[Row]:
    """By turns: mediated with a share, and with a whole card; under a supervisor that lets every call go on;
    unmediated. One card carries them all out.
    """
    names = ("mediated", "whole", "supervised", "copying", "plain")
    sides: dict[str, list[Times]] = {name: [] for name in names}
    with one_cpu(), arbiter.running("titan-rtx", sim_options=(DRIVER,)) as mgpu, _script(mgpu) as folder:
        for _ in range(TURNS):
            sides["mediated"].append(_inside(mgpu, built, folder))
            sides["whole"].append(_inside(mgpu, built, folder, env=WHOLE))
            for how in ("supervised", "copying"):
                sides[how].append(_beside(mgpu, built, folder, how))
            sides["plain"].append(_beside(mgpu, built, folder))
        alone = _beside(mgpu, built, folder)
    mediated, whole, supervised, copying, plain = (_by_call(found) for found in sides.values())
    added, of_whole, floor, copied = (
        sum(side.values()) - sum(plain.values()) for side in (mediated, whole, supervised, copying)
    )
    return [
        Row(
            name=f"recorded start of libcuda, {len(plain)} calls, beside the unmediated",
            value=sum(mediated.values()) / 1000,
            unit="ms",
            baseline=sum(plain.values()) / 1000,
        ),
        Row(
            name="added to it, beside what an empty supervisor adds",
            value=added / 1000,
            unit="ms",
            baseline=floor / 1000,
        ),
        Row(
            name="the same, over what an empty supervisor adds; beside: a copying one over that",
            value=added / floor,
            unit="x",
            baseline=copied / floor,
        ),
        Row(
            name="the same, over what one adds that makes the system calls of any mediator",
            value=added / copied,
            unit="x",
            target=MOST_OF_COPYING,
        ),
        Row(
            name="added with a whole card, over what an empty supervisor adds; beside: with a share over that",
            value=of_whole / floor,
            unit="x",
            baseline=added / floor,
            target=MOST_OF_WHOLE,
        ),
        *_stages(mediated, supervised, plain),
        *(row for known in PUBLISHED for row in _published(built, known, alone)),
    ]


def _by_call(found: list[Times]) -> dict[int, float]:
    return {row: median(times.call_us[row] for times in found) for row in found[0].call_us}


def _stages(
    mediated: dict[int, float], supervised: dict[int, float], plain: dict[int, float]
) -> Iterator[Row]:
    """Where it goes: the calls to which most is added, all of a kind together."""
    kinds: dict[str, list[int]] = {}
    for row in recorded(RECORDING):
        if row.row in plain:
            kinds.setdefault("opens" if row.opens else row.call.split()[0], []).append(row.row)

    def added(side: dict[int, float], rows: list[int]) -> float:
        return sum(side[row] - plain[row] for row in rows)

    for kind, rows in sorted(kinds.items(), key=lambda item: -abs(added(mediated, item[1])))[:MOST_KINDS]:
        yield Row(
            name=f"... of it: {kind}, {len(rows)} calls",
            value=added(mediated, rows) / 1000,
            unit="ms",
            baseline=added(supervised, rows) / 1000,
        )


def _published(built: Programs, known: _Published, alone: Times) -> Iterator[Row]:
    """The same start, as long as one that was published. What the calls take by themselves on this
    machine is a part of that: the card adds the rest. What share mediation has of one on a card, only that
    can say.
    """
    init_us, context_us, took = 0.0, 0.0, alone
    # Twice: beside a card that takes its time each call takes longer than one after the other.
    for last in (False, True):
        init_us += known.init_ms * 1000 - took.init_us
        context_us += known.context_ms * 1000 - took.context_us
        options = (DRIVER, f"init-us={round(max(0, init_us))}", f"context-us={round(max(0, context_us))}")
        with one_cpu(), arbiter.running("titan-rtx", sim_options=options) as mgpu, _script(mgpu) as folder:
            if not last:
                took = _beside(mgpu, built, folder, starts=LONG_STARTS)
                continue
            mediated, plain = [], []
            for _ in range(LONG_TURNS):
                mediated.append(_inside(mgpu, built, folder, LONG_STARTS).start_us)
                plain.append(_beside(mgpu, built, folder, starts=LONG_STARTS).start_us)
    yield from compared(f"recorded start, as long as on {known.card}, p50", mediated, plain, known.most)
