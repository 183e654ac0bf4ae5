"""The start of a recorded libcuda: what mediation adds to it, and what an empty supervisor adds to the same calls."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
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
ENV = {"MGPU_MEMORY_MIB": "4096"}
# What a start took where somebody published it: docs/simulator.md. The added time's share of it is printed.
PUBLISHED_MS = {"230 ms, a V100's": 230, "103 ms, an RTX 5090's": 103}
MOST_OF_FLOOR = 1.5


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


def _took(out: str) -> tuple[float, int]:
    found = json.loads(out)
    return float(found["start_us"]), int(found["calls"])


def _inside(mgpu: Arbiter, built: Programs, folder: Path) -> tuple[float, int]:
    mount = {"destination": "/script", "type": "bind", "source": str(folder), "options": ["rbind", "ro"]}
    words = (inside("replay"), "/script/script", str(STARTS), str(INIT_ENDS), str(CONTEXT_ENDS))
    with bundle(*words, env=ENV, mounts=[built.oci_mount, mount]) as made:
        done = made.run(mgpu.runtime)
    assert done.status == 0, str(done)
    return _took(done.out)


def _beside(mgpu: Arbiter, built: Programs, folder: Path, *how: str) -> float:
    """On the machine itself: with the card for its driver, or without any."""
    env = {
        "LD_PRELOAD": str(built.folder / UNMEDIATED),
        "MGPU_CARD_SOCKET": str(mgpu.root / "sim" / "card.sock"),
        "MGPU_DRIVER_VERSION": VERSION,
    }
    words = (str(folder / "script"), str(STARTS), str(INIT_ENDS), str(CONTEXT_ENDS), *how)
    done = attempt(built.folder / "replay", *words, env={} if how else env)
    assert done.status == 0, str(done)
    return _took(done.out)[0]


def measure(built: Programs) -> list[Row]:
    """By turns: mediated, unmediated; the calls into nothing, and the same under a supervisor that lets them go on."""
    options = (f"driver-version={VERSION}",)
    added, floor, calls = [], [], 0
    with one_cpu(), arbiter.running("titan-rtx", sim_options=options) as mgpu, _script(mgpu) as folder:
        for _ in range(TURNS):
            mediated, calls = _inside(mgpu, built, folder)
            added.append(mediated - _beside(mgpu, built, folder))
            floor.append(_beside(mgpu, built, folder, "supervised") - _beside(mgpu, built, folder, "blind"))
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
        *(
            Row(name=f"a start of {name} with that added", value=1 + median(added) / 1000 / ms, unit="x")
            for name, ms in PUBLISHED_MS.items()
        ),
    ]
