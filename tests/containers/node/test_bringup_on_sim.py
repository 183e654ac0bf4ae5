"""The run for machines with a card, with a simulated one in its place: everything of it but the card."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gpu import kit, stages
from tests.support import host
from tests.support.commands import run as run_command
from tests.support.places import REPOSITORY

BRINGUP = REPOSITORY / "tests" / "gpu" / "bringup.sh"


@pytest.fixture(scope="module")
def kit_folder(private_host: None) -> Iterator[Path]:
    """It lies where its programs look for their libraries, in a mount that only this test sees."""
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
    """Each experiment's verdict. It is begun where another tree lies, which it is not to take for its own."""
    for package in ("tests", "native_sched"):
        (out / package).mkdir()
        (out / package / "__init__.py").write_text("raise ImportError('not of the kit')")
    environment = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "PYTHONPATH")}
    environment["MGPU_GPU_KIT"] = os.fspath(kit_folder)
    done = subprocess.run(
        [BRINGUP, out, "--sim", *args], env=environment, cwd=out, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((out / "results.json").read_text())
    assert [line.partition(":")[0] for line in done.stdout.splitlines()[:-1]] == [
        one["experiment"] for one in found
    ]
    return {one["experiment"]: one["verdict"] for one in found}


NOWHERE = "cannot be said here: "
SERVES = "serves in containers"
# Where not what passes on a card.
DECIDED = {
    "F0 start": SERVES,
    "F1 nvidia-smi": f"{NOWHERE}nvidia-smi is the driver's own",
    "P0 start": SERVES,
    "P3 torch": f"{NOWHERE}no Python here has torch, or it would have no card to compute on",
    "P21 programs": f"{NOWHERE}they compute, and a simulated card does not",
    "P22 start": SERVES,
    "P23 whole cards": f"{NOWHERE}they compute, and a simulated card does not",
    "P14 NCCL in one container": f"{NOWHERE}NCCL computes, and a simulated card does not",
    "P14 NCCL in two containers": f"{NOWHERE}NCCL computes, and a simulated card does not",
    "E13 groups of a context": "1 groups and 1 channels",
    "E15 unregistered channel": "disabled, and SCHEDULE takes it too",
    "E22 files of nvidia-uvm": f"{NOWHERE}a simulated card's files are no device nodes",
    "E19 MIG subscription": f"{NOWHERE}there is no MIG instance",
    "E25 use without the page": f"{NOWHERE}nvidia-smi is the driver's own",
    "E20 peers natively": f"{NOWHERE}NCCL computes, and a simulated card does not",
    "P15 start": SERVES,
}
# Here a virtual machine may stand still at any time, so that what they say of time says nothing of the card.
MEASURED = {
    "E2 suspend by schedule": ("stops and resumes", "does not stop cleanly"),
    "E2 suspend by disable": ("stops and resumes", "does not stop cleanly"),
    "E11 foreign handles": ("another's handles are refused", "another's channels can be stopped"),
    "E10 long suspension": ("goes on", "does not go on"),
    "E16 lone slice": ("keeps ",),
    "E9 kill": ("ends and frees", "memory stays"),
    "P16 colocation without status": ("offline gives way and comes back", "offline does not give way"),
    "P4 colocation": ("offline gives way and comes back", "offline does not give way"),
}


@pytest.mark.parametrize("part", stages.PARTS)
@pytest.mark.timeout(300)
def test_each_part_passes_on_simulated_cards(kit_folder: Path, tmp_path: Path, part: str) -> None:
    """Every stage of it, in its order and after each start of mgpu, says what a simulated card lets it
    say."""
    found = run(kit_folder, tmp_path, "--part", part)
    wanted = [stage.name for stage in stages.PARTS[part]]
    assert [name for name in found if name not in stages.STARTS.values()] == wanted
    passes = {stage.name: stage.passes for stage in stages.PARTS[part]}
    for name, verdict in found.items():
        assert verdict.startswith(MEASURED.get(name) or DECIDED.get(name) or passes[name]), name


def test_bringup_puts_the_filter_on_plain_processes(kit_folder: Path, tmp_path: Path) -> None:
    assert run(kit_folder, tmp_path, "--plain", "--only", "P0", "P1", "P2", "P9") == {
        "P0 start": "serves plain processes under the filter",
        "P1 view": "shows the cap",
        "P2 memory": "out of memory at the cap, goes on",
        "P9 in turn": "each has all",
    }
