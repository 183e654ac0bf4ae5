"""tests/gpu/record.c writes down what a program asks of NVIDIA's nodes, and of nothing else."""

import json
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gpu import calls, kit
from tests.gpu.backend import simulated_nodes
from tests.support import rm_numbers as nv
from tests.support.commands import run

ENOTTY, ENODEV = 25, 19
# RM_CONTROL 0x101 with parameters, a mapping, and the control's status.
ASKS = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None)
params = ctypes.create_string_buffer(b"abc", 16)
outer = ctypes.create_string_buffer(struct.pack("<4IQ2I", 1, 2, 0x101, 0, ctypes.addressof(params), 16, 0), 32)
fd = os.open(sys.argv[1], os.O_RDWR)
result = libc.ioctl(fd, ctypes.c_ulong(0xC020462A), outer)
libc.mmap(None, ctypes.c_size_t(4096), 1, 1, fd, ctypes.c_long(0))
os.close(fd)
print(result, struct.unpack_from("<I", outer, 0x1C)[0])
"""


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("recorder") / "record.so"
    kit.recorder(library)
    return library


def asks(recorder: Path, folder: Path, node: Path, **env: str) -> list[str]:
    given = [f"{key}={value}" for key, value in env.items()]
    preloaded = ["env", f"LD_PRELOAD={recorder}", f"RECORD_DIR={folder}", *given]
    return [*preloaded, sys.executable, "-c", ASKS, str(node)]


def lines(folder: Path) -> list[dict[str, Any]]:
    [file] = folder.glob("*.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_nodes_calls_are_recorded(recorder: Path, tmp_path: Path) -> None:
    """A null device by the name of one, which has no ioctls and no memory."""
    node = Path("/dev/nvidiactl")
    assert run(*simulated_nodes(asks(recorder, tmp_path, node))) == "-1 0\n"
    program, opened, asked, mapped, closed = lines(tmp_path)
    assert "python" in program["exe"]
    assert [call["s"] for call in (opened, asked, mapped, closed)] == [0, 1, 2, 3]
    assert (opened["open"], opened["e"]) == (str(node), 0)
    assert {one["fd"] for one in (opened, asked, mapped, closed)} == {opened["fd"]}
    assert (asked["f"], asked["c"], asked["r"], asked["e"]) == ("nvidiactl", "0xc020462a", -1, ENOTTY)
    assert asked["i"].startswith("01000000020000000101000000000000")
    assert (asked["pn"], asked["p"]) == (16, b"abc".hex())
    # Nothing has changed.
    assert not {"o", "q"} & asked.keys()
    assert (mapped["mmap"], mapped["e"]) == ("nvidiactl", ENODEV)
    assert (closed["close"], closed["e"]) == ("nvidiactl", 0)


def test_call_is_refused_in_the_drivers_place(recorder: Path, tmp_path: Path) -> None:
    argv = asks(
        recorder, tmp_path, Path("/dev/nvidiactl"), REFUSE=f"c101:57,t101:{nv.NV_ERR_NOT_SUPPORTED:x}"
    )
    assert run(*simulated_nodes(argv)) == f"0 {nv.NV_ERR_NOT_SUPPORTED}\n"
    [asked] = [one for one in lines(tmp_path) if "c" in one]
    assert (asked["r"], asked["e"]) == (0, 0)
    assert bytes.fromhex(asked["o"])[0x1C] == nv.NV_ERR_NOT_SUPPORTED


def test_file_is_made_before_its_program_may_make_none(recorder: Path, tmp_path: Path) -> None:
    env = [f"{name}={value}" for name, value in calls.recording(tmp_path, at_once=True).items()]
    run("env", *env, f"LD_PRELOAD={recorder}", "/bin/true")
    [file] = tmp_path.glob("*.jsonl")
    assert json.loads(file.read_text())["exe"].endswith("true")


def test_failed_calls_are_told_by_name(tmp_path: Path) -> None:
    def asked(command: int, before: bytes, after: bytes, error: int = 0) -> dict[str, Any]:
        return {
            "s": 1,
            "c": hex(command),
            "r": 0,
            "e": error,
            "ns": 5000,
            "i": before.hex(),
            "o": after.hex(),
        }

    def outer(number: int, number_at: int, status: int, status_at: int) -> tuple[bytes, bytes]:
        before = struct.pack("<I", number).rjust(number_at + 4, b"\0")
        return before, before.ljust(status_at, b"\0") + struct.pack("<I", status)

    control = outer(nv.NV2080_CTRL_CMD_FB_GET_INFO_V2, 8, nv.NV_ERR_NOT_SUPPORTED, 0x1C)
    rows = [
        {"exe": "/bin/true", "ppid": 1},
        {"s": 0, "open": "/dev/nvidiactl", "fd": 3, "r": "-1", "e": ENODEV},
        asked(0xC020462A, *control),
        asked(0xC020462A, control[0], control[0]),
        asked(0xC030462B, *outer(nv.NV01_DEVICE_0, 12, nv.NV_ERR_NOT_SUPPORTED, 0x28)),
        asked(nv.UVM_CREATE_EXTERNAL_RANGE, b"", bytes(16) + struct.pack("<I", nv.NV_ERR_NOT_SUPPORTED)),
        asked(0xC020462A, *control),
        asked(nv.UVM_CREATE_EXTERNAL_RANGE, b"", b"", ENOTTY),
    ]
    file = tmp_path / "1.jsonl"
    text = "".join(json.dumps(row) + "\n" for row in rows)
    recorded = calls.Recorded(lambda: tmp_path)
    # A line that is half there is read once it is whole.
    file.write_text(text[:-9])
    found = recorded.new()
    assert calls.failed(found) == [
        "open /dev/nvidiactl: errno 19",
        "control 0x20801303 NV2080_CTRL_CMD_FB_GET_INFO_V2: status 0x56 NV_ERR_NOT_SUPPORTED",
        "class 0x80 NV01_DEVICE_0: status 0x56 NV_ERR_NOT_SUPPORTED",
        "uvm 73 UVM_CREATE_EXTERNAL_RANGE: status 0x56 NV_ERR_NOT_SUPPORTED",
    ]
    file.write_text(text)
    assert calls.failed(recorded.new()) == ["uvm 73 UVM_CREATE_EXTERNAL_RANGE: errno 25"]
    assert len(found) == 6
    assert calls.slowest(found, 1) == [
        "control 0x20801303 NV2080_CTRL_CMD_FB_GET_INFO_V2: status 0x56 NV_ERR_NOT_SUPPORTED 5 us"
    ]


def test_ordinary_file_is_not_recorded(recorder: Path, tmp_path: Path) -> None:
    file = tmp_path / "nvidiactl"
    file.write_bytes(bytes(4096))
    assert run(*asks(recorder, tmp_path, file)) == "-1 0\n"
    assert list(tmp_path.glob("*.jsonl")) == []
