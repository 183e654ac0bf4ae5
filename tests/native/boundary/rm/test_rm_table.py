"""The RM interface by driver version: C and Python read the same file, and the page shows it."""

import ctypes
import errno
import itertools
import re
import struct
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from oci_specs.seccomp.notified import NOTIFY_CUBES, REFUSED_CUBES
from tests.support import rm_interface
from tests.support.commands import attempt
from tests.support.places import REPOSITORY
from tests.support.rm_interface import Item
from tools.abi import store

INTERFACE = rm_interface.read()
TABLE = REPOSITORY / "native_sched/nvidia/rm" / "table.c"
PROBE = """
#include "native_sched/nvidia/rm/rm_abi.h"
#include "native_sched/nvidia/rm/channel.h"
#include "native_sched/nvidia/rm/perfmon.h"
#include "native_sched/nvidia/rm/table.h"
int pick(const char *version, struct rm_table *out) { return rm_table_pick(version, out); }
int class_params(const struct rm_table *t, uint32_t id) { return rm_class_params(t, id); }
int control_params(const struct rm_table *t, uint32_t cmd) { return rm_control_params(t, cmd); }
uint32_t perfmon(const struct rm_table *t, uint8_t *out)
{
    struct rm_perfmon_layout l = rm_perfmon_layout(t);
    const struct rm_perfmon_use use[RM_PERFMON_KNOWN] = {[RM_PERFMON_FB] = {12, 34}, [RM_PERFMON_GR] = {5600, 78},
                                                         [RM_PERFMON_NVENC] = {9, 1}, [RM_PERFMON_NVDEC] = {0, 2}};
    struct rm_perfmon_use read[RM_PERFMON_KNOWN];

    rm_perfmon_write(&l, out, 1234567890123, use);
    if (rm_perfmon_read(&l, out, read) != 1234567890123 || memcmp(read, use, sizeof(use)))
        return 0;
    return l.sample_bytes;
}
uint32_t channel(const struct rm_table *t, uint8_t *out)
{
    struct rm_channel wanted = {.flags = 1, .userd_memory = {2}, .userd_offset = {3}, .engine_type = 4}, read;
    uint32_t bytes = rm_channel_write(t, &wanted, out);

    rm_channel_read(t, out, &read);
    return memcmp(&wanted, &read, sizeof(read)) ? 0 : bytes;
}
const char *known(void) { return rm_table_known(); }
/* Of every number and size, with types and directions: a command that is watched and in no cube, or the other
 * way about; -1: none. */
int64_t differs(const uint32_t (*cubes)[2], uint32_t count)
{
    static const uint32_t others[] = {0, 0x100, 0x8000, 0x40000000, 0x80000000, 0xc000ff00};

    for (uint32_t i = 0; i < sizeof(others) / sizeof(*others); i++)
        for (uint32_t at = 0; at < 1 << 22; at++) {
            uint32_t cmd = (at & 0x3fff00) << 8 | (at & 0xff) | others[i], k = 0;

            while (k < count && (cmd & cubes[k][0]) != cubes[k][1])
                k++;
            if (rm_is_watched(cmd) != (k < count))
                return cmd;
        }
    return -1;
}
"""


class Table(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("version", ctypes.c_uint32),
        ("unknown", ctypes.c_uint32),
        ("bytes", ctypes.c_uint32 * len(INTERFACE.sizes)),
    ]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("rm")
    (folder / "probe.c").write_text(PROBE)
    flags = [
        "-std=gnu11",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-fPIC",
        "-shared",
        f"-I{REPOSITORY}",
    ]
    subprocess.run(["gcc", *flags, "-o", folder / "probe.so", folder / "probe.c", TABLE], check=True)
    return ctypes.CDLL(str(folder / "probe.so"))


def picked(table: ctypes.CDLL, version: str) -> Table | None:
    out = Table()
    return None if table.pick(version.encode(), ctypes.byref(out)) else out


CALLERS_SIZE = 0x20000
SERVED = {major for major, _ in INTERFACE.branches}
LIVES = {at for life in INTERFACE.lives.values() for at in life if at and at[0] in SERVED}
DISPOSITION = "disposition: PASSED, MEDIATED, ANSWERED or REFUSED"
VERSIONS = sorted({*INTERFACE.branches, *INTERFACE.points(), *LIVES})


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("later", [0, 7])
def test_sizes_of_a_version(table: ctypes.CDLL, version: tuple[int, int], later: int) -> None:
    at = (version[0], version[1] + later)
    found = picked(table, f"{at[0]}.{at[1]}.01")
    assert found is not None
    sizes = {name: INTERFACE.size_at(name, at) for name in INTERFACE.sizes}
    assert list(found.bytes) == list(sizes.values())
    assert (found.major, found.minor) == max(point for point in INTERFACE.points() if point <= at)
    classes = {item.number: -errno.ENOENT for item in INTERFACE.classes}
    classes |= {
        item.number: INTERFACE.size_at(item.size, at) or 0
        for item in living(INTERFACE.classes, at)
        if item.disposition != "REFUSED"
    }
    for number, expected in classes.items():
        assert table.class_params(ctypes.byref(found), number) == expected, hex(number)
    for number, expected in controls_at(at).items():
        assert table.control_params(ctypes.byref(found), number) == expected, hex(number)


def living(items: Iterable[Item], at: tuple[int, int]) -> Iterator[Item]:
    return (item for item in items if INTERFACE.lives_at(item.name, at))


def controls_at(at: tuple[int, int]) -> dict[int, int]:
    """What the table says of each control there is in any version."""
    said = {item.number: -errno.ENOENT for item in INTERFACE.controls}
    return said | {
        item.number: CALLERS_SIZE if item.callers else INTERFACE.size_at(item.size, at) or 0
        for item in living(INTERFACE.controls, at)
    }


def test_branch_stands_for_its_newest(table: ctypes.CDLL) -> None:
    whole, newest = picked(table, "580"), picked(table, "580.999")
    assert whole is not None
    assert newest is not None
    assert (whole.major, whole.minor, list(whole.bytes)) == (580, 65, list(newest.bytes))


@pytest.mark.parametrize(
    "version", ["", "x", "600.1", "534.99", "535.54.03", "535.43", "5800.1", "58", "580x", "-580", "580,1"]
)
def test_unknown_version_has_no_row(table: ctypes.CDLL, version: str) -> None:
    assert picked(table, version) is None


def test_mediator_decides_on_what_the_exact_lists_have(table: ctypes.CDLL) -> None:
    """All else that the filter notifies goes on."""
    cubes = NOTIFY_CUBES + REFUSED_CUBES
    pairs = (ctypes.c_uint32 * (2 * len(cubes)))(*itertools.chain(*cubes))
    table.differs.restype = ctypes.c_int64
    assert table.differs(pairs, len(cubes)) == -1, hex(table.differs(pairs, len(cubes)))


def test_known_branches_are_listed(table: ctypes.CDLL) -> None:
    table.known.restype = ctypes.c_char_p
    assert table.known().decode() == ", ".join(f"{major}.{minor}" for major, minor in INTERFACE.branches)


def test_numbers_of_a_kind_differ() -> None:
    assert len({item.number for item in INTERFACE.classes}) == len(INTERFACE.classes)
    for at in VERSIONS:
        controls = [item.number for item in living(INTERFACE.controls, at)]
        assert len(set(controls)) == len(controls), at
    assert len({item.number for item in INTERFACE.uvm}) == len(INTERFACE.uvm)
    escapes = [
        (escape.number, size) for escape in INTERFACE.escapes for size in INTERFACE.all_sizes(escape.size)
    ]
    assert len(set(escapes)) == len(escapes)


def test_changes_are_in_the_order_of_versions() -> None:
    for name, changes in INTERFACE.sizes.items():
        versions = [since for since, _ in changes]
        assert versions == sorted(set(versions)), name
        assert versions[0] == INTERFACE.branches[0], f"{name} has no size in the oldest version"


def test_page_is_what_the_file_says() -> None:
    assert rm_interface.PAGE.read_text() == rm_interface.page(INTERFACE)


@pytest.mark.parametrize("version", ["535.86.05", "570.86.15", "595.45.04", "610.43.03", "615.71.09"])
def test_channel_parameters_lie_where_the_headers_say(table: ctypes.CDLL, version: str) -> None:
    found = picked(table, version)
    assert found is not None
    out = (ctypes.c_uint8 * 376)(*[0xA5] * 376)
    size = table.channel(ctypes.byref(found), out)
    fields = store.load().releases[version].facts["field"]
    written = {"flags": 1, "hUserdMemory": 2, "userdOffset": 3, "engineType": 4}
    expected = bytearray(size)
    for field, value in written.items():
        expected[int(fields["NV_CHANNEL_ALLOC_PARAMS", field][0], 16)] = value
    assert bytes(out)[:size] == expected
    assert size == int(fields["NV_CHANNEL_ALLOC_PARAMS", "(size)"][1])


@pytest.mark.parametrize(
    ("version", "engines", "engine_bytes"),
    [
        ("535.86", 4, 116),
        ("545.23", 4, 116),
        ("550.54", 6, 116),
        ("565.57", 6, 116),
        ("570.86", 6, 128),
        ("595.45", 6, 128),
    ],
)
def test_sample_of_utilisation(table: ctypes.CDLL, version: str, engines: int, engine_bytes: int) -> None:
    """As ctrl2080perf.h has it: a time, then of each engine its use, a scale, a pid, a guest's pid and
    name."""
    found = picked(table, version)
    assert found is not None
    out = (ctypes.c_uint8 * 1024)(*[0xA5] * 1024)
    engine = struct.Struct(f"<IIII100x{engine_bytes - 116}x")
    nobody = engine.pack(0, 0, 2**32 - 1, 2**32 - 1)
    expected = struct.pack("<Q", 1234567890123)
    expected += engine.pack(12, 0, 34, 2**32 - 1) + engine.pack(5600, 0, 78, 2**32 - 1)
    expected += engine.pack(9, 0, 1, 2**32 - 1) + engine.pack(0, 0, 2, 2**32 - 1)
    expected += nobody * (engines - 4)
    assert table.perfmon(ctypes.byref(found), out) == len(expected)
    assert bytes(out) == expected + b"\xa5" * (1024 - len(expected))
    at = (int(version[:3]), int(version[4:]))
    assert INTERFACE.size_at(
        "NV2080_CTRL_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2_PARAMS", at
    ) == 16 + 72 * len(expected)


@pytest.mark.parametrize(
    ("symbol", "row", "without", "what"),
    [
        ("NV01_EVENT", r"(CLASS\(NV01_EVENT,.*), EVENT\)", r"\1)", "kind: OTHER, if nothing"),
        ("NV_ESC_RM_FREE", r"(ESCAPE\(NV_ESC_RM_FREE,.*), MEDIATED.*\)", r"\1)", DISPOSITION),
        ("UVM_MIGRATE", r"(UVM\(UVM_MIGRATE,.*), MEDIATED.*\)", r"\1)", DISPOSITION),
        (
            "NVA06C_CTRL_CMD_PREEMPT",
            r"(CONTROL\(NVA06C_CTRL_CMD_PREEMPT,.*), ANSWERED.*\)",
            r"\1)",
            DISPOSITION,
        ),
    ],
)
def test_row_that_decides_nothing_ends_the_build_in_one_line(
    tmp_path: Path, symbol: str, row: str, without: str, what: str
) -> None:
    text, changed = re.subn(row, without, rm_interface.SOURCE.read_text())
    assert changed == 1
    (tmp_path / "interface.def").write_text(text)
    (tmp_path / "table.h").write_text((REPOSITORY / "native_sched/nvidia/rm/table.h").read_text())
    (tmp_path / "one.c").write_text('#include "table.h"\n')
    done = attempt("cc", "-c", "-o", "/dev/null", tmp_path / "one.c")
    line = f"interface.def: {symbol} has no {what}"
    assert [said for said in done.err.splitlines() if "error:" in said and line in said]
    assert done.err.count("error:") == 1, done.err
    with pytest.raises(rm_interface.RowError, match=f"{symbol} has no {what.partition(':')[0]}"):
        rm_interface.read(tmp_path / "interface.def")
