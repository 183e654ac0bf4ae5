"""What a run leaves: a JSON list of results, one line of verdict each, and a log of everything that was
said."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Result:
    """One experiment. verdict: a few words; figures: what was measured, times in us unless a name says
    otherwise.
    """

    experiment: str
    verdict: str = "not run"
    figures: dict[str, Any] = field(default_factory=dict)
    notes: str = ""
    seconds: float = 0.0


class Results:
    """The results so far, on disk at any time: a run may be cut short."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.found: list[Result] = []
        folder.mkdir(parents=True, exist_ok=True)
        self._log = open(folder / "log.txt", "a", buffering=1)  # noqa: SIM115 - as long as the run

    def log(self, text: str) -> None:
        self._log.write(f"{time.monotonic():.6f} {text}\n")

    def add(self, result: Result) -> None:
        self.found.append(result)
        documents = [vars(one) for one in self.found]
        (self.folder / "results.json").write_text(json.dumps(documents, indent=1) + "\n")
        line = f"{result.experiment}: {result.verdict} ({result.seconds:.1f} s)"
        self.log(f"RESULT {line}")
        print(line, flush=True)

    def fact(self, experiment: str, name: str) -> Any:
        """A figure of an earlier experiment; None where there is none."""
        for one in self.found:
            if one.experiment == experiment:
                return one.figures.get(name)
        return None


def quantiles(values: Sequence[float]) -> dict[str, float | int]:
    """n, p50, p99 and max; of no values n alone."""
    ordered = sorted(values)
    if not ordered:
        return {"n": 0}

    def at(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 3)

    return {"n": len(ordered), "p50": at(0.5), "p99": at(0.99), "max": at(1)}
