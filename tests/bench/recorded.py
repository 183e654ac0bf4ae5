"""The start of a recorded libcuda: what mediation adds to it, and what an empty supervisor adds to the same calls."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from sim import cards
from tests.bench.mediation import one_cpu
from tests.bench.rows import Row
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
from tests.support.commands import attempt
from tests.support.programs import UNMEDIATED, Programs, inside

TURNS, STARTS = 9, 9
# Starts that take as long as real ones: fewer.
LONG_TURNS, LONG_STARTS = 7, 3
ENV = {"MGPU_MEMORY_MIB": "4096"}
MOST_OF_FLOOR = 1.5
DRIVER = f"driver-version={VERSION}"
Times = dict[str, float]


@dataclass(frozen=True)
class _Published:
    """What cuInit and a context took somewhere, with one card and its driver loaded; docs/simulator.md says by whom."""

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


def _inside(mgpu: Arbiter, built: Programs, folder: Path, starts: int = STARTS) -> Times:
    mount = {"destination": "/script", "type": "bind", "source": str(folder), "options": ["rbind", "ro"]}
    words = (inside("replay"), "/script/script", str(starts), str(INIT_ENDS), str(CONTEXT_ENDS))
    with bundle(*words, env=ENV, mounts=[built.oci_mount, mount]) as made:
        done = made.run(mgpu.runtime)
    assert done.status == 0, str(done)
    found: Times = json.loads(done.out)
    return found


def _beside(mgpu: Arbiter, built: Programs, folder: Path, *how: str, starts: int = STARTS) -> Times:
    """On the machine itself: with the card for its driver, or without any."""
    env = {
        "LD_PRELOAD": str(built.folder / UNMEDIATED),
        "MGPU_CARD_SOCKET": str(mgpu.root / "sim" / "card.sock"),
        "MGPU_DRIVER_VERSION": VERSION,
    }
    words = (str(folder / "script"), str(starts), str(INIT_ENDS), str(CONTEXT_ENDS), *how)
    done = attempt(built.folder / "replay", *words, env={} if how else env)
    assert done.status == 0, str(done)
    found: Times = json.loads(done.out)
    return found


def measure(built: Programs) -> list[Row]:
    """By turns: mediated, unmediated; the calls into nothing, and the same under a supervisor that lets them go on."""
    added, floor, calls = [], [], 0
    with one_cpu(), arbiter.running("titan-rtx", sim_options=(DRIVER,)) as mgpu, _script(mgpu) as folder:
        for _ in range(TURNS):
            mediated = _inside(mgpu, built, folder)
            calls = round(mediated["calls"])
            added.append(mediated["start_us"] - _beside(mgpu, built, folder)["start_us"])
            under, blind = (_beside(mgpu, built, folder, how) for how in ("supervised", "blind"))
            floor.append(under["start_us"] - blind["start_us"])
        alone = _beside(mgpu, built, folder)
    return [
        Row(
            name=f"recorded start of libcuda, {calls} calls, added to it, p50",
            value=median(added) / 1000,
            unit="ms",
            baseline=median(floor) / 1000,
        ),
        Row(
            name="the same, over what an empty supervisor adds",
            value=median(ours / least for ours, least in zip(added, floor, strict=True)),
            unit="x",
            target=MOST_OF_FLOOR,
        ),
        *(row for known in PUBLISHED for row in _published(built, known, alone)),
    ]


def _published(built: Programs, known: _Published, alone: Times) -> Iterator[Row]:
    """The same start, as long as one that somebody has published. What the calls take by themselves on this machine is
    a part of that: the card adds the rest. What share mediation has of one on a card, only that can say."""
    init_us, context_us, took = 0.0, 0.0, alone
    # Twice: beside a card that takes its time each call takes longer than one after the other.
    for last in (False, True):
        init_us += known.init_ms * 1000 - took["init_us"]
        context_us += known.context_ms * 1000 - took["context_us"]
        options = (DRIVER, f"init-us={round(max(0, init_us))}", f"context-us={round(max(0, context_us))}")
        with one_cpu(), arbiter.running("titan-rtx", sim_options=options) as mgpu, _script(mgpu) as folder:
            if not last:
                took = _beside(mgpu, built, folder, starts=LONG_STARTS)
                continue
            mediated, plain = [], []
            for _ in range(LONG_TURNS):
                mediated.append(_inside(mgpu, built, folder, LONG_STARTS)["start_us"])
                plain.append(_beside(mgpu, built, folder, starts=LONG_STARTS)["start_us"])
    yield Row(
        name=f"recorded start, as long as on {known.card}, p50",
        value=median(mediated) / 1000,
        unit="ms",
        baseline=median(plain) / 1000,
    )
    yield Row(
        name="the same, over the unmediated",
        value=median(ours / theirs for ours, theirs in zip(mediated, plain, strict=True)),
        unit="x",
        target=known.most,
    )
