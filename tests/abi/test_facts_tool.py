"""python -m tools.abi: what it says of a header tree, of one that changes something, and of one that is none."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.abi.header_tree import CONTROL, PARAMS, SDK, UNIX, Tree
from tests.support.places import REPOSITORY
from tools.abi import store, tables


@pytest.fixture
def facts(tmp_path: Path) -> Path:
    """A copy of the project's facts to which the small tree's driver is added."""
    folder = tmp_path / "facts"
    shutil.copytree(tables.FACTS, folder)
    assert tool("--facts", folder, "add", Tree().write(tmp_path / "known")).returncode == 0
    return folder


def tool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.abi", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)


def decided(facts: Path, tmp_path: Path, tree: Tree) -> list[str]:
    """What `diff` says that a person has to decide."""
    tree.version = "700.20.02"
    done = tool("--facts", facts, "diff", tree.write(tmp_path / "new"))
    assert done.returncode == 0, done.stderr
    part = done.stdout.split("To decide: ")[1].split("Changed, and")[0]
    return [line.strip() for line in part.splitlines()[1:] if line.strip()]


def test_facts_are_the_compilers(tmp_path: Path) -> None:
    done = tool("facts", Tree().write(tmp_path))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "status\tNV_ERR_BUSY_RETRY\t0x3" in lines
    assert "class\tNV20_SUBDEVICE_0\t0x2080\tNV2080_ALLOC_PARAMETERS\t4" in lines
    assert f"control\t{CONTROL}\t0x20800110\t{PARAMS}\t68" in lines
    assert f"privilege\t{CONTROL}\tNON_PRIVILEGED\t0x0" in lines
    assert "escape\tNV_ESC_RM_CONTROL\tNVOS54_PARAMETERS\t0x2a\t32" in lines
    assert "uvm\tUVM_FREE\t0x22\tUVM_FREE_PARAMS\t16" in lines
    assert "field\tNVOS54_PARAMETERS\tstatus\t0x1c\t4" in lines
    assert f"field\t{PARAMS}\tgpuNameString.ascii\t0x4\t64" in lines


def test_what_is_added_is_kept_and_read_again(facts: Path) -> None:
    known = store.load(facts)
    assert known.versions[-1] == "700.10.01"
    assert known.newest.complete
    assert known.value("control", (CONTROL,), "700.10.01") == ("0x20800110", PARAMS, "68")
    assert known.value("control", (CONTROL,), "590.48.01") == ("0x20800110", PARAMS, "132")


def test_the_same_driver_again_changes_nothing(facts: Path, tmp_path: Path) -> None:
    # Rows are wanted of every driver's escapes; the small tree's all have one.
    assert decided(facts, tmp_path, Tree()) == []


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        pytest.param(
            Tree(escapes={**Tree().escapes, "NV_ESC_RM_NEW_WAY": 0x60}),
            "escape NV_ESC_RM_NEW_WAY: has no row: passed, mediated, answered or refused?",
            id="escape without disposition",
        ),
        pytest.param(
            Tree(escapes={**Tree().escapes, "NV_ESC_RM_NEW_WAY": 0x60}),
            "escape NV_ESC_RM_NEW_WAY: no header says its struct: find it in nv.c or escape.c",
            id="escape without struct",
        ),
        pytest.param(
            Tree(uvm={**Tree().uvm, "UVM_NEW_WAY": 99}),
            "uvm UVM_NEW_WAY: has no row: passed, mediated, answered or refused?",
            id="UVM command without disposition",
        ),
        pytest.param(
            Tree(name_bytes=72),
            f"control {CONTROL}: 0x20800110 {PARAMS} 68 -> 0x20800110 {PARAMS} 76: a KEY and BYTES",
            id="size of a control's parameters",
        ),
        pytest.param(Tree(name_bytes=72), "struct rm_name is decoded", id="size of a decoded struct"),
        pytest.param(
            Tree(control=0x20800111),
            f"control {CONTROL}: 0x20800110 {PARAMS} 68 -> 0x20800111 {PARAMS} 68: a second row",
            id="number of a control",
        ),
        pytest.param(
            Tree(flags=0x4),
            f"privilege {CONTROL}: NON_PRIVILEGED 0x0 -> PRIVILEGED 0x0: see whether",
            id="privilege of a control",
        ),
        pytest.param(
            Tree(status=0x4), "status NV_ERR_BUSY_RETRY: 0x3 -> 0x4: a second row", id="number of a status"
        ),
        pytest.param(
            Tree(escapes={"NV_ESC_RM_CONTROL": 0x2A}),
            "escape NV_ESC_RM_FREE NVOS00_PARAMETERS: 0x29 16 -> not there: its row ends with UNTIL",
            id="escape that is gone",
        ),
    ],
)
def test_diff_says_what_a_person_has_to_decide(
    facts: Path, tmp_path: Path, tree: Tree, expected: str
) -> None:
    assert any(expected in line for line in decided(facts, tmp_path, tree))


def refused(*arguments: str | Path) -> str:
    done = tool(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("tools.abi: ")
    assert len(done.stderr.splitlines()) == 1
    return done.stderr


@pytest.mark.parametrize("command", ["facts", "diff", "judge", "add"])
def test_tree_that_does_not_compile_is_told_with_the_first_error(tmp_path: Path, command: str) -> None:
    (Tree().write(tmp_path) / SDK / "nvos.h").write_text("typedef NvU99 NvV99;\n")
    assert "does not compile: " in refused(command, tmp_path)


def test_tree_without_a_header_is_told_which(tmp_path: Path) -> None:
    (Tree().write(tmp_path) / UNIX / "nv_escape.h").unlink()
    assert f"lacks {UNIX}/nv_escape.h: give a whole source tree" in refused("facts", tmp_path)


def test_tree_without_the_drivers_tables_is_told(tmp_path: Path) -> None:
    (Tree().write(tmp_path) / "src/nvidia/generated/g_subdevice_nvoc.c").unlink()
    assert "lacks src/nvidia/generated/g_*_nvoc.c" in refused("facts", tmp_path)


def test_folder_that_is_none_is_told(tmp_path: Path) -> None:
    assert "is not a folder" in refused("facts", tmp_path / "missing")


def test_tree_without_a_version_is_told(tmp_path: Path) -> None:
    (Tree().write(tmp_path) / "version.mk").unlink()
    assert "version.mk names no version" in refused("facts", tmp_path)


def test_driver_before_every_known_one_is_told(tmp_path: Path) -> None:
    said = refused("diff", Tree(version="520.61.05").write(tmp_path))
    assert "520.61.05 is older than every known driver, the first of which is 535.86.05" in said


def test_driver_of_an_unknown_branch_has_nothing_to_be_judged_by(tmp_path: Path) -> None:
    said = refused("judge", Tree(version="999.10").write(tmp_path))
    assert "999.10: no known driver is before it and none after: add it first" in said


def test_what_is_no_tree_needs_a_version(tmp_path: Path) -> None:
    assert "give --version and --source" in refused("add", tmp_path, "--tinygrad", "nv_610")
