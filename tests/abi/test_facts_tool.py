"""python -m tools.abi: what it says of a header tree, of one that changes something, and of one that is
none."""

import shutil
import sys
from pathlib import Path

import pytest

from tests.abi.header_tree import CONTROL, PARAMS, SDK, UNIX, Tree
from tests.support.commands import Done, attempt
from tests.support.places import REPOSITORY
from tools.abi import store, tables
from tools.abi.interface import SOURCE


@pytest.fixture
def facts(tmp_path: Path) -> Path:
    """A copy of the project's facts to which the small tree's driver is added."""
    folder = tmp_path / "facts"
    shutil.copytree(tables.FACTS, folder)
    assert tool("--facts", folder, "add", Tree().write(tmp_path / "known")).status == 0
    return folder


def tool(*arguments: str | Path) -> Done:
    command = [sys.executable, "-m", "tools.abi", *arguments]
    return attempt(*command, cwd=REPOSITORY)


def decided(facts: Path, tmp_path: Path, tree: Tree) -> list[str]:
    """What `diff` says that a person has to decide."""
    tree.version = "700.20.02"
    done = tool("--facts", facts, "diff", tree.write(tmp_path / "new"))
    assert done.status == 0, done.err
    part = done.out.split("To decide: ")[1].split("Changed, and")[0]
    return [line.strip() for line in part.splitlines()[1:] if line.strip()]


def test_facts_are_the_compilers(tmp_path: Path) -> None:
    done = tool("facts", Tree().write(tmp_path))
    assert done.status == 0, done.err
    lines = done.out.splitlines()
    assert "status\tNV_ERR_BUSY_RETRY\t0x3" in lines
    assert "class\tNV20_SUBDEVICE_0\t0x2080\tNV2080_ALLOC_PARAMETERS\t4" in lines
    assert f"control\t{CONTROL}\t0x20800110\t{PARAMS}\t68" in lines
    assert f"privilege\t{CONTROL}\tNON_PRIVILEGED\t0x0" in lines
    assert "escape\tNV_ESC_RM_CONTROL\tNVOS54_PARAMETERS\t0x2a\t32" in lines
    assert "uvm\tUVM_FREE\t0x22\tUVM_FREE_PARAMS\t16" in lines
    assert "field\tNVOS54_PARAMETERS\tstatus\t0x1c\t4" in lines
    assert f"field\t{PARAMS}\tgpuNameString.ascii\t0x4\t64" in lines


def test_added_facts_are_kept_and_read_again(facts: Path) -> None:
    known = store.load(facts)
    assert known.versions[-1] == "700.10.01"
    assert known.newest.complete
    assert known.value("control", (CONTROL,), "700.10.01") == ("0x20800110", PARAMS, "68")
    assert known.value("control", (CONTROL,), "590.48.01") == ("0x20800110", PARAMS, "132")


def test_adding_a_known_driver_changes_nothing(facts: Path, tmp_path: Path) -> None:
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
    assert done.status == 2
    assert done.out == ""
    assert done.err.startswith("tools.abi: ")
    assert len(done.err.splitlines()) == 1
    return done.err


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


def test_missing_folder_is_reported(tmp_path: Path) -> None:
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


def test_file_that_is_no_tree_needs_a_version(tmp_path: Path) -> None:
    assert "give --version and --source" in refused("add", tmp_path, "--tinygrad", "nv_610")


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        pytest.param(
            "UVM(UVM_MIGRATE, 51, 0, MEDIATED(continue_in_caller))",
            "UVM(UVM_MIGRATE, 51, 0)",
            "interface.def: UVM_MIGRATE has no disposition: PASSED, MEDIATED, ANSWERED or REFUSED",
            id="a row without a disposition",
        ),
        pytest.param(
            "UVM(UVM_MIGRATE, 51, 0, MEDIATED(continue_in_caller))",
            "UVM(UVM_MIGRATE, 51, 0, MEDIATE)",
            "interface.def: UVM_MIGRATE has no disposition: PASSED, MEDIATED, ANSWERED or REFUSED",
            id="a disposition that is none",
        ),
        pytest.param(
            "CONTROL(NVA06C_CTRL_CMD_GET_INFO, 0xa06c0106, 4, PASSED)",
            "CONTROL(NVA06C_CTRL_CMD_GET_INFO, 0xa06c0106, 4)",
            "interface.def: NVA06C_CTRL_CMD_GET_INFO has no disposition: PASSED, MEDIATED, ANSWERED or REFUSED",
            id="a control without a disposition",
        ),
        pytest.param(
            "CLASS(NV01_EVENT, 0x5, 24, EVENT)",
            "CLASS(NV01_EVENT, five, 24, EVENT)",
            "interface.def: CLASS(NV01_EVENT, five, 24, EVENT) is no such row",
            id="a row that is none",
        ),
        pytest.param(
            "CLASS(NV01_EVENT, 0x5, 24, EVENT)",
            "CLASS(NV01_EVENT, 0x5, 24)",
            "interface.def: NV01_EVENT has no kind: OTHER, if nothing",
            id="a class without a kind",
        ),
    ],
)
def test_row_that_says_too_little_is_told(tmp_path: Path, before: str, after: str, said: str) -> None:
    assert said in refused("parity", "--interface", mutated(tmp_path, before, after))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        pytest.param(
            "BYTES(NVOS46_PARAMETERS, 580, 65, 64)",
            "BYTES(NVOS46_PARAMETERS, 580, 65, 72)",
            "NV_ESC_RM_MAP_MEMORY_DMA: escape 0x57: 72 bytes, and NVOS46_PARAMETERS has 64 in 580.65.06..",
            id="a size that no branch has",
        ),
        pytest.param(
            "PARAMS_AT(0x10, 0x20), POINTER_AT(0x18)",
            "PARAMS_AT(0x10, 0x18), POINTER_AT(0x18)",
            "NV_ESC_RM_ALLOC: escape 0x2b: their size at 0x18, and NVOS64_PARAMETERS has it at 0x20 in 535.86.05..",
            id="an offset that is another field's",
        ),
        pytest.param(
            "BRANCH(615, 71)",
            "BRANCH(615, 71)\nBRANCH(999, 10)",
            "BRANCH(999): no facts at all in 999",
            id="an unknown branch",
        ),
    ],
)
def test_row_that_no_header_has_is_told(tmp_path: Path, before: str, after: str, said: str) -> None:
    done = tool("parity", "--interface", mutated(tmp_path, before, after))
    assert done.status == 1
    (line,) = done.err.splitlines()
    assert line.startswith(said)


def test_rows_that_are_not_there_are_told(tmp_path: Path) -> None:
    assert "No such file" in refused("parity", "--interface", tmp_path / "interface.def")
    assert "No such file" in refused("--facts", tmp_path, "parity")


def mutated(folder: Path, before: str, after: str) -> Path:
    text = SOURCE.read_text()
    assert before in text
    out = folder / "interface.def"
    out.write_text(text.replace(before, after))
    return out


EVENT = """
type NV0005_ALLOC_PARAMETERS struct {
    _             structs.HostLayout
    HParentClient Handle
    HSrcResource  Handle
    HClass        ClassID
    NotifyIndex   uint32 // with flags
    Data          P64
}
"""


def add_struct(facts: Path, folder: Path, text: str) -> Done:
    folder.mkdir(exist_ok=True)
    (folder / "classes.go").write_text(text)
    return tool("--facts", facts, "add-struct", folder, "NV0005_ALLOC_PARAMETERS", "610.43.03", "gVisor")


def test_struct_in_go_is_taken_for_a_driver_without_headers(facts: Path, tmp_path: Path) -> None:
    done = add_struct(facts, tmp_path / "nvgpu", EVENT)
    assert done.status == 0, done.err
    known = store.load(facts)
    assert known.value("field", ("NV0005_ALLOC_PARAMETERS", "data"), "610.43.03") == ("0x10", "8")
    assert known.value("field", ("NV0005_ALLOC_PARAMETERS", "(size)"), "610.43.03") == ("-", "24")
    assert known.releases["610.43.03"].source.endswith("; NV0005_ALLOC_PARAMETERS: gVisor")


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("type NV0005", "type NV0006", "no struct NV0005_ALLOC_PARAMETERS"),
        ("P64", "Elsewhere", "NV0005_ALLOC_PARAMETERS.Data: Elsewhere is of no known size"),
        ("HClass ", "HOther ", "NV0005_ALLOC_PARAMETERS has no hOther in 595.45.04"),
    ],
)
def test_struct_in_go_that_does_not_fit_is_told(
    facts: Path, tmp_path: Path, before: str, after: str, expected: str
) -> None:
    done = add_struct(facts, tmp_path / "nvgpu", EVENT.replace(before, after))
    assert done.status == 2
    assert expected in done.err


def add_same(facts: Path, tmp_path: Path, names: str, known: str) -> Done:
    (tmp_path / "names").write_text(names)
    return tool("--facts", facts, "add-same", tmp_path / "names", "999.10", known, "a table")


def test_structs_that_did_not_change_are_taken_with_what_takes_them(facts: Path, tmp_path: Path) -> None:
    assert (
        add_same(facts, tmp_path, "NVOS54_PARAMETERS\nNV0005_ALLOC_PARAMETERS.data", "595.45.04").status == 0
    )
    found = store.load(facts).releases["999.10"]
    assert (found.source, found.complete) == ("a table", False)
    assert found.facts["escape"] == {("NV_ESC_RM_CONTROL", "NVOS54_PARAMETERS"): ("0x2a", "32")}
    assert found.facts["field"]["NVOS54_PARAMETERS", "status"] == ("0x1c", "4")
    assert [key for key in found.facts["field"] if key[0] != "NVOS54_PARAMETERS"] == [
        ("NV0005_ALLOC_PARAMETERS", "data")
    ]


@pytest.mark.parametrize(
    ("names", "known", "said"),
    [
        ("NVOS99_PARAMETERS", "595.45.04", "NVOS99_PARAMETERS: not in 595.45.04"),
        ("NVOS54_PARAMETERS", "594.1", "594.1: not a known driver"),
        ("NVOS46_PARAMETERS", "575.64.05", "999.10 is known to have it otherwise"),
    ],
)
def test_struct_that_is_not_so_is_told(
    facts: Path, tmp_path: Path, names: str, known: str, said: str
) -> None:
    assert add_same(facts, tmp_path, "NVOS46_PARAMETERS", "595.45.04").status == 0
    done = add_same(facts, tmp_path, names, known)
    assert done.status == 2
    assert said in done.err
