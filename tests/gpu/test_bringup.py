"""The whole run on this machine's card: make gpu-kit first."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

BRINGUP = Path(__file__).with_name("bringup.sh")
UNDECIDED = ("failed", "crashed", "timed out", "skipped", "no GPU", "missing")


@pytest.mark.timeout(600)
def test_everything_is_decided(tmp_path: Path) -> None:
    subprocess.run([BRINGUP, tmp_path], check=True)
    found = {
        one["experiment"]: one["verdict"] for one in json.loads((tmp_path / "results.json").read_text())
    }
    assert [name for name, verdict in found.items() if verdict.startswith(UNDECIDED)] == []
