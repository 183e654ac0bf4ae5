"""The whole run on this machine's cards: make gpu-kit first."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.gpu import stages

BRINGUP = Path(__file__).with_name("bringup.sh")
UNDECIDED = ("failed", "crashed", "timed out", "skipped", "no GPU", "missing")


@pytest.mark.parametrize("part", stages.PARTS)
@pytest.mark.timeout(600)
def test_every_stage_has_a_verdict(tmp_path: Path, part: str) -> None:
    subprocess.run([BRINGUP, tmp_path, "--part", part], check=True)
    found = {
        one["experiment"]: one["verdict"] for one in json.loads((tmp_path / "results.json").read_text())
    }
    assert [name for name, verdict in found.items() if verdict.startswith(UNDECIDED)] == []
    assert {stage.name for stage in stages.PARTS[part]} <= found.keys()
