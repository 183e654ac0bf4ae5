"""The run for machines with a card, with a simulated one in its place: everything of it but the card."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gpu import kit
from tests.support import host
from tests.support.commands import run as run_command
from tests.support.places import REPOSITORY

BRINGUP = REPOSITORY / "tests" / "gpu" / "bringup.sh"


@pytest.fixture(scope="module")
def kit_folder(private_host: None) -> Iterator[Path]:
    """It lies where its programs look for their libraries, in a mount that nobody but this test sees."""
    with host.home("kit") as folder:
        assert kit.make(folder / "kit") < kit.MAX_BYTES
        run_command("mount", "-t", "tmpfs", "none", kit.PLACE.parent)
        try:
            kit.PLACE.mkdir()
            run_command("mount", "--bind", folder / "kit", kit.PLACE)
            yield folder / "kit"
        finally:
            run_command("umount", "--lazy", "--recursive", kit.PLACE.parent)


def run(kit_folder: Path, out: Path, *args: str) -> dict[str, str]:
    """Each experiment's verdict."""
    environment = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "PYTHONPATH")}
    environment["MGPU_GPU_KIT"] = os.fspath(kit_folder)
    done = subprocess.run(
        [BRINGUP, out, "--sim", *args], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((out / "results.json").read_text())
    assert [line.partition(":")[0] for line in done.stdout.splitlines()[:-1]] == [
        one["experiment"] for one in found
    ]
    return {one["experiment"]: one["verdict"] for one in found}


SIMULATED = "not on a simulated card: it asks NVIDIA's driver"
DECIDED = {
    "E0 probe": "ok",
    "E6 census": "handles seen",
    "E4 on behalf": "works without CAP_SYS_ADMIN",
    "E5 refusal": "refused as out of memory",
    "E8 visibility": SIMULATED,
    "E7 userd": SIMULATED,
    "P0 start": "serves in containers",
    "P1 view": "shows the cap",
    "P2 memory": "out of memory at the cap, goes on",
    "P9 in turn": "each has all",
    "P3 torch": "no PyTorch here",
    "P7 hostile": "all held",
}
# Here a virtual machine may stand still at any time, so that what they say of time says nothing of the card.
MEASURED = {
    "E1 timeslice": ("measured",),
    "E2 suspend by schedule": ("stops and resumes", "does not stop cleanly"),
    "E2 suspend by disable": ("stops and resumes", "does not stop cleanly"),
    "E3 cost": ("measured",),
    "E11 foreign handles": ("another's handles are refused", "another's channels can be stopped"),
    "E10 long suspension": ("goes on", "does not go on"),
    "E9 kill": ("ends and frees", "memory stays"),
    "P4 colocation": ("offline gives way and comes back", "offline does not give way"),
    "P5 overhead": ("measured",),
    "P6 cost of calls": ("measured",),
    "P8 start": ("measured",),
}


@pytest.mark.timeout(300)
def test_the_whole_run(kit_folder: Path, tmp_path: Path) -> None:
    found = run(kit_folder, tmp_path)
    assert set(found) == DECIDED.keys() | MEASURED.keys()
    assert {name: found[name] for name in DECIDED} == DECIDED
    for name, verdicts in MEASURED.items():
        assert found[name] in verdicts, name


def test_without_containers_the_same_filter_is_on_plain_processes(kit_folder: Path, tmp_path: Path) -> None:
    assert run(kit_folder, tmp_path, "--plain", "--only", "P0", "P1", "P2", "P9") == {
        "P0 start": "serves plain processes under the filter",
        "P1 view": "shows the cap",
        "P2 memory": "out of memory at the cap, goes on",
        "P9 in turn": "each has all",
    }
