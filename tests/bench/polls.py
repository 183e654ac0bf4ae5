"""A poll that reads all status words beside one that reads a single one, by chip.

The words are in memory here, so the time is the processor's. On a card a word is a read over PCIe, as is each
of USERD where that lies in video memory: so the words that a poll reads are counted beside it.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from tests.bench.rows import Row
from tests.support import chips
from tests.support.commands import run
from tests.support.places import REPOSITORY
from tests.support.sources import engine_sources

# What libcuda 555 makes for a context (tests/recordings).
CHANNELS, ROUNDS, TARGET = 20, 20000, 1.2
CHIPS = {
    "V100": "GV100",
    "A100": "GA100",
    "H100": "GH100",
    "RTX 4090": "AD102",
    "RTX 5090": "GB202",
    "B200": "GB100",
}


def _program(folder: Path) -> Path:
    out = folder / "poll_words"
    engine = [path for path in engine_sources() if path.name != "state.c"]
    sources = [Path(__file__).with_name("poll_words.c"), REPOSITORY / "tests/native/poll_in_time.c", *engine]
    flags = ["-std=gnu11", "-O2", "-pthread", f"-I{REPOSITORY}"]
    run("gcc", *flags, "-o", out, *sources)
    return out


def _rows(program: Path, name: str, chip: chips.Chip) -> Iterator[Row]:
    words = [str(program), hex(chip.architecture), hex(chip.implementation), str(CHANNELS), str(ROUNDS)]
    said = run(*words)
    times_ns = [tuple(map(float, line.split())) for line in said.splitlines()]
    one_ns, all_ns = (median(column) for column in zip(*times_ns, strict=True))
    ratio = median(every / one for one, every in times_ns)
    title = f"{name}: a poll of {CHANNELS} channels and all {chip.words} status words"
    yield Row(name=title, value=all_ns, unit="ns", baseline=one_ns)
    # Of a whole card's words nobody read a single one before: such a card was blind.
    target = None if chip.whole_card else TARGET
    yield Row(name="the same, over one that reads a single word", value=ratio, unit="x", target=target)
    userd = CHANNELS * (2 if chip.has_get else 1)
    yield Row(
        name=f"{name}: words that it reads, over those with a single status word",
        value=(userd + chip.words) / (userd + 1),
        unit="x",
        target=target,
    )


def measure() -> list[Row]:
    known = {chip.name: chip for chip in chips.chips()}
    with tempfile.TemporaryDirectory(prefix="mgpu-bench-") as folder:
        program = _program(Path(folder))
        return [row for name, chip in CHIPS.items() for row in _rows(program, name, known[chip])]
