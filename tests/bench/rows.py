"""What a benchmark reports: rows for people and for machines."""

import json
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Literal

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, kw_only=True)
class Row:
    """A figure; baseline: the plain thing of the same run and unit; target: its limit."""

    name: str
    value: float
    unit: str
    baseline: float | None = None
    target: float | None = None
    better: Literal["lower", "higher"] = "lower"

    @property
    def kept(self) -> bool | None:
        if self.target is None:
            return None
        return self.value <= self.target if self.better == "lower" else self.value >= self.target


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of the values lie; of few values the nearest one above."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def compared(
    name: str, ours_us: Sequence[float], plain_us: Sequence[float], target: float | None = None
) -> Iterator[Row]:
    """Of turns with mgpu and without it: the medians in ms, and the median of their ratios."""
    yield Row(name=name, value=median(ours_us) / 1000, unit="ms", baseline=median(plain_us) / 1000)
    ratios = [ours / plain for ours, plain in zip(ours_us, plain_us, strict=True)]
    yield Row(name="the same, over the unmediated", value=median(ratios), unit="x", target=target)


def kept(path: Path) -> dict[str, list[Row]]:
    """What an earlier run has written, by part; nothing where there is none, or one of another form."""
    try:
        return {name: [Row(**row) for row in rows] for name, rows in json.loads(path.read_text()).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def collect(parts: Iterable[tuple[str, Callable[[], Iterable[Row]]]], path: Path) -> list[str]:
    """Measures each part, prints each row as it comes, and writes what there is after each part, beside what
    an earlier run had of others. Returns the parts that failed: these keep what they had.
    """
    failed = []
    for name, measure in parts:
        print(f"{name}:", flush=True)
        try:
            found = []
            for row in measure():
                found.append(row)
                print(f"  {row.name}: {row.value:.2f} {row.unit}", flush=True)
        except Exception:
            traceback.print_exc()
            failed.append(name)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        all_ = {part: [asdict(row) for row in rows] for part, rows in {**kept(path), name: found}.items()}
        path.write_text(json.dumps(all_, indent=1) + "\n")
    return failed


def show(rows: Iterable[Row]) -> None:
    table = Table("what", "value", "beside", "target", "", title="mgpu bench")
    for column in (1, 2, 3):
        table.columns[column].justify = "right"
    for row in rows:
        beside = "" if row.baseline is None else f"{row.baseline:.2f}"
        limit = "" if row.target is None else f"{'≤' if row.better == 'lower' else '≥'} {row.target:g}"
        verdict = {None: "", True: "kept", False: "missed"}[row.kept]
        table.add_row(row.name, f"{row.value:.2f} {row.unit}", beside, limit, verdict)
    Console().print(table)
