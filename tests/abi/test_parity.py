"""interface.def and the structs that the mediator decodes, against NVIDIA's headers of every driver that is
served.
"""

import functools
import re
from pathlib import Path

import pytest

from tests.support.places import REPOSITORY
from tools.abi import interface, layouts, parity, store, tables
from tools.abi.interface import HEADERS, SOURCE
from tools.abi.store import Store


@functools.cache
def known() -> Store:
    return store.load()


def rows_said(source: Path = SOURCE) -> set[str]:
    return {said.line() for said in parity.compare(interface.read(source), known())}


def layouts_said(*headers: Path) -> set[str]:
    ours = layouts.measure(headers or HEADERS)
    return {said.line() for said in layouts.compare(interface.read(), known(), ours)}


def test_every_branch_of_the_table_has_facts() -> None:
    served = {int(release.version.split(".")[0]) for release in parity.served(interface.read(), known())}
    assert served == set(interface.read().branches)


def test_newest_known_driver_is_served() -> None:
    """Facts whose branch has no row of interface.def are of no use."""
    assert interface.read().serves(known().versions[-1]), (
        f"BRANCH of {known().versions[-1]} in interface.def"
    )


def test_readme_names_the_oldest_and_the_newest_branch() -> None:
    branches = interface.read().branches
    said = re.search(r"Branches (\d+)\S* to (\d+)", (REPOSITORY / "README.md").read_text())
    assert said is not None
    assert (int(said[1]), int(said[2])) == (min(branches), max(branches)), "README.md"


def test_rows_are_the_headers() -> None:
    said = rows_said()
    assert not said, "\n".join(sorted(said))


def without_a_row(source: Path = SOURCE) -> set[str]:
    """Escapes and commands of nvidia-uvm that some served driver has, and no row says what becomes of them
    there.
    """
    rows = interface.read(source)
    found = set()
    for release in parity.served(rows, known()):
        said = {
            (row.kind, row.base) for row in rows.rows if row.disposition and row.applies(release.version)
        }
        for kind in ("escape", "uvm"):
            names = {key[0] for key in release.facts[kind]}
            found |= {f"{release.version}: {name}" for name in names if (kind, name) not in said}
    return found


def test_every_escape_and_command_of_nvidia_uvm_has_a_disposition() -> None:
    assert not without_a_row()


@pytest.mark.parametrize("symbol", ["NV_ESC_RM_ALLOC_CONTEXT_DMA2", "UVM_DISCARD", "UVM_RESERVE_VA"])
def test_row_that_is_missing_is_seen(tmp_path: Path, symbol: str) -> None:
    mutated = tmp_path / "interface.def"
    lines = SOURCE.read_text().splitlines(keepends=True)
    mutated.write_text("".join(line for line in lines if f"({symbol}," not in line))
    assert f"595.45.04: {symbol}" in without_a_row(mutated)


def test_decoded_structs_and_constants_are_the_headers() -> None:
    said = layouts_said()
    assert not said, "\n".join(sorted(said))


def test_every_struct_of_ours_says_what_it_is() -> None:
    """What is new goes into native_sched/nvidia/rm/facts/decoded.tsv, as docs/driver-branches.md says."""
    assert layouts.unmapped() == []
    assert len(layouts.structs()) > 40, "the headers' structs are not understood"


def test_struct_that_says_nothing_is_seen(tmp_path: Path) -> None:
    (tmp_path / "new.h").write_text("struct rm_new {\n    uint32_t a, pad;\n};\n")
    assert layouts.unmapped([*HEADERS, tmp_path / "new.h"]) == ["struct rm_new"]


def test_every_driver_says_where_decoded_fields_are() -> None:
    """A row of decoded.tsv whose name is mistyped is a field that nothing is compared with."""
    every = set(known().keys("field"))
    said = {(row.params, row.params_field) for row in tables.decoded()}
    assert said <= every
    assert {(constant.expression,) for constant in tables.constants()} <= set(known().keys("constant"))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param(
            "STATUS(NV_ERR_NO_MEMORY, 0x51)",
            "STATUS(NV_ERR_NO_MEMORY, 0x52)",
            "0x52: it is 0x51",
            id="status",
        ),
        pytest.param(
            "NVOS46_PARAMETERS, 580, 65, 64", "NVOS46_PARAMETERS, 580, 65, 72", "72 bytes", id="size"
        ),
        pytest.param(
            "FIFO_DISABLE_CHANNELS, 0x2080110b, 536", "FIFO_DISABLE_CHANNELS, 0x2080110b, 544", "544", id="8"
        ),
        pytest.param("0xa06c0105", "0xa06c0104", "0xa06c0104: it is 0xa06c0105", id="control"),
        pytest.param("(NV01_DEVICE_0, 0x80, 56", "(NV01_DEVICE_0, 0x81, 56", "0x81: it is 0x80", id="class"),
        pytest.param(
            "NV_ESC_RM_SHARE, 0x35, 24, 0x14", "NV_ESC_RM_SHARE, 0x35, 24, 0x10", "status at 0x10", id="at"
        ),
        pytest.param(
            "UVM_UNMAP_EXTERNAL, 66, 40", "UVM_UNMAP_EXTERNAL, 67, 40", "0x43: it is 0x42", id="uvm"
        ),
        pytest.param("NV_ERR_NOT_SUPPORTED", "NV_ERR_UNSUPPORTED", "no header has the symbol", id="symbol"),
    ],
)
def test_mistake_in_a_row_is_seen(tmp_path: Path, before: str, after: str, expected: str) -> None:
    text = SOURCE.read_text()
    assert before in text
    mutated = tmp_path / "interface.def"
    mutated.write_text(text.replace(before, after))
    new = rows_said(mutated) - rows_said()
    assert any(expected in line for line in new), new


def test_field_of_which_a_branch_says_nothing_is_seen() -> None:
    """610 has no headers: where an event's fields are there, gVisor alone says."""
    without = store.load()
    for key in [key for key in without.keys("field") if key[0] == "NV0005_ALLOC_PARAMETERS"]:
        without.releases["610.57.04"].facts["field"].pop(key)
    said = {one.line() for one in layouts.compare(interface.read(), without, layouts.measure())}
    assert "rm_event.client: nothing says where NV0005_ALLOC_PARAMETERS.hParentClient is in 610" in said


@pytest.mark.parametrize(
    ("header", "before", "after", "expected"),
    [
        pytest.param(
            "rm_abi.h",
            "uint32_t client, parent, handle, source_client, source_handle, flags, status;",
            "uint32_t client, parent, source_client, handle, source_handle, flags, status;",
            "rm_dup.handle: at 0xc, and NVOS55_PARAMETERS.hObject is at 0x8",
            id="fields in another order",
        ),
        pytest.param(
            "rm_abi.h",
            "uint32_t id_type, id, count, pid[RM_MAX_PIDS];",
            "uint32_t id_type, id, count, pid[RM_MAX_PIDS + 2];",
            "rm_pids.(size): 3820 bytes",
            id="a size off by eight",
        ),
        pytest.param(
            "rm_abi.h",
            "RM_SHARE_COMPOSE = 4",
            "RM_SHARE_COMPOSE = 8",
            "RM_SHARE_COMPOSE: 0x8",
            id="a constant",
        ),
        pytest.param(
            "uvm_abi.h",
            "uint64_t gpus; /* of the array */",
            "uint64_t gpus, more; /* of the array */",
            "uvm_map_external_end.gpus: at ",
            id="fields counted from the end",
        ),
    ],
)
def test_mistake_in_a_header_is_seen(
    tmp_path: Path, header: str, before: str, after: str, expected: str
) -> None:
    for path in HEADERS:
        copy = tmp_path / path.relative_to(REPOSITORY)
        copy.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text()
        if path.name == header:
            assert before in text
            text = text.replace(before, after)
        # The layouts that the header asserts for itself are not what is tried here.
        copy.write_text(
            "".join(line for line in text.splitlines(True) if "_Static_assert(" not in line[:16])
        )
    for name in ("native_sched/nvidia/rm/interface.def", "native_sched/nvidia/rm/table.h"):
        (tmp_path / name).write_text((REPOSITORY / name).read_text())
    mutated = [tmp_path / path.relative_to(REPOSITORY) for path in HEADERS]
    text = mutated[0].read_text()
    mutated[0].write_text(text[: text.index("#define RM_AT(")] + "#endif\n")
    new = layouts_said(*mutated) - layouts_said()
    assert any(expected in line for line in new), new
