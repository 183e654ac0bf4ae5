"""Attempts that only NVIDIA's driver can decide, which are in tests/gpu/hostile.py: where there is a card and a kit."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.gpu.hostile import ATTEMPTS, DECIDED_ON_A_CARD
from tests.support.places import REPOSITORY
from tests.support.programs import HOSTILE, STATIC_SOURCES


@pytest.mark.gpu
@pytest.mark.timeout(300)
def test_each_is_refused_or_accounted(tmp_path: Path) -> None:
    subprocess.run([REPOSITORY / "tests/gpu/bringup.sh", tmp_path, "--only", "P0", "P7"], check=True)
    [found] = [
        one
        for one in json.loads((tmp_path / "results.json").read_text())
        if one["experiment"] == "P7 hostile"
    ]
    assert found["figures"] == {attempt.name: "held" for attempt in ATTEMPTS}


def test_what_a_card_decides_is_said_in_the_docs() -> None:
    """And every one of them is a program that there is."""
    page = (REPOSITORY / "docs" / "nvidia-driver.md").read_text()
    for attempt in DECIDED_ON_A_CARD:
        assert f"| {attempt.name} | {attempt.decides} |" in page
    for attempt in ATTEMPTS:
        assert attempt.argv[0] in HOSTILE or attempt.argv[0] in STATIC_SOURCES
