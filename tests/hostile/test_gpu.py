"""Attempts that only NVIDIA's driver can decide, which are in tests/gpu/hostile.py: where there is a card and
a kit.
"""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.gpu.hostile import ATTEMPTS, DECIDED_ON_A_CARD, Attempt
from tests.gpu.product import Product
from tests.gpu.product_stages import held
from tests.gpu.results import Results
from tests.support.places import REPOSITORY
from tests.support.programs import HOSTILE, NAMES, STATIC_SOURCES


@pytest.mark.gpu
@pytest.mark.timeout(300)
def test_each_attempt_is_refused_or_accounted(tmp_path: Path) -> None:
    subprocess.run([REPOSITORY / "tests/gpu/bringup.sh", tmp_path, "--only", "P0", "P7"], check=True)
    [found] = [
        one
        for one in json.loads((tmp_path / "results.json").read_text())
        if one["experiment"] == "P7 hostile"
    ]
    assert found["figures"] == {attempt.name: "held" for attempt in ATTEMPTS}


def test_docs_name_every_gpu_attempt() -> None:
    """And every one of them is a program that there is."""
    page = (REPOSITORY / "docs" / "gpu-results.md").read_text()
    for attempt in DECIDED_ON_A_CARD:
        assert f"| {attempt.name} | {attempt.decides} |" in page
    for attempt in ATTEMPTS:
        assert attempt.argv[0] in (*HOSTILE, *STATIC_SOURCES, *NAMES)


@dataclass
class Served:
    """A product in whose container the attempt leaves so much to the ledger, and so much on the card."""

    charged_mib: int
    used_mib: list[int] = field(default_factory=list)

    @contextmanager
    def container(self, argv: list[str], *, memory_mib: int) -> Iterator[Any]:
        process = SimpleNamespace(poll=lambda: None)
        yield SimpleNamespace(name="one", line=lambda: "2 2 2", process=process)

    def containers(self) -> list[Any]:
        return [{"container_id": "one", "cards": [{"used_bytes": self.charged_mib << 20}]}]

    def card_used_mib(self) -> int:
        return self.used_mib.pop(0)


@pytest.mark.parametrize(
    ("charged", "used", "covered", "good"),
    [
        (300, 340, True, True),
        (300, 400, True, False),
        (300, 400, False, True),
        (300, 600, False, False),
        (600, 600, True, False),
    ],
)
def test_held_judges_the_charge_of_an_attempt(charged: int, used: int, covered: bool, good: bool) -> None:
    """covered: memory below the cap too has to be in the ledger."""
    attempt = Attempt("one", ("one",), lambda _said, _line: True, covered=covered)
    product = cast("Product", Served(charged, [100, 100 + used]))
    results = cast("Results", SimpleNamespace(log=lambda _line: None))
    assert (held(product, attempt, results) == "") is good
