"""The simulated libraries under real clients, every ioctl forwarded to a card by a plain supervisor."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from oci_specs import paths
from sim.cards import CardProcess
from tests.sim.conftest import Run, library_environment
from tests.support.commands import run

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a mount namespace with device nodes")
MIB = 1 << 20
HERE = Path(__file__).parent
CONTEXT_BYTES = 200 * MIB
V100_BYTES = 16160 * MIB


@pytest.fixture
def cuda(run: Run) -> Callable[..., Any]:
    return lambda case, **environment: json.loads(
        run([sys.executable, str(HERE / "cuda_cases.py"), case], **environment)
    )


@pytest.fixture
def nvml(run: Run) -> Callable[..., Any]:
    return lambda case: json.loads(run([sys.executable, str(HERE / "nvml_cases.py"), case]))


@contextmanager
def _holder(supervised: Callable[[list[str]], list[str]]) -> Iterator[int]:
    """A process that holds 1 GiB of the first card; its pid."""
    command = supervised([sys.executable, str(HERE / "cuda_cases.py"), "hold"])
    with subprocess.Popen(
        command, env=library_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())


def test_cuda_sees_the_cards(simulated: CardProcess, cuda: Callable[..., Any]) -> None:
    expected = [
        [
            card.name,
            card.pci.lower().removeprefix("0000"),
            card.uuid.removeprefix("GPU-").replace("-", ""),
            card.memory_mib * MIB,
            {"v100-16": 7, "a10": 8}[card.profile],
            {"v100-16": 80, "a10": 72}[card.profile],
        ]
        for card in simulated.cards()
    ]
    assert cuda("devices") == expected
    assert cuda("devices", CUDA_VISIBLE_DEVICES="2,0") == [expected[2], expected[0]]
    assert cuda("devices", CUDA_VISIBLE_DEVICES=f"{simulated.cards()[1].uuid},7,0") == [expected[1]]
    for nothing in ("", "-1", "0,0"):
        assert cuda("devices", CUDA_VISIBLE_DEVICES=nothing) == 100


def test_cuda_memory_to_the_last_byte(cuda: Callable[..., Any]) -> None:
    seen = cuda("memory")
    start = [V100_BYTES - CONTEXT_BYTES, V100_BYTES]
    assert seen["results"] == [0, 2, 0, 2]
    assert seen["start"] == seen["end"] == start
    assert seen["full"] == [0, V100_BYTES]
    assert seen["after"] == [64 * MIB, V100_BYTES]


def test_cuda_context_without_room_is_out_of_memory_and_undone(cuda: Callable[..., Any]) -> None:
    assert cuda("no_room_for_a_context") == [2, True]


def test_cuda_after_fork(cuda: Callable[..., Any]) -> None:
    assert cuda("fork") == 0


def test_cuda_primary_context(cuda: Callable[..., Any]) -> None:
    seen = cuda("primary")
    assert seen == {"states": [1, 0], "free": V100_BYTES - CONTEXT_BYTES - MIB, "released": 709}


def test_cuda_threads(cuda: Callable[..., Any]) -> None:
    assert cuda("threads") == {"failures": 0, "calls": 408, "leaked": 0}


def test_cuda_entry_points(cuda: Callable[..., Any]) -> None:
    assert cuda("entry_points") == [[True, 0], [False, 2], [True, 0], [True, 0], [False, 1]]


def test_nvml_sees_cards_memory_and_processes(
    simulated: CardProcess, supervised: Callable[[list[str]], list[str]], nvml: Callable[..., Any]
) -> None:
    with _holder(supervised) as pid:
        seen = nvml("cards")
    assert (seen["driver"], seen["cuda"]) == ("580.95.05", 13000)
    for card, row in zip(simulated.cards(), seen["cards"], strict=True):
        # GET_PID_INFO counts memory objects, and nothing for the context's channel group.
        held = [[pid, 1 << 30]] if card.index == 0 else []
        assert row == {
            "name": card.name,
            "uuid": card.uuid,
            "minor": card.minor,
            "pci": card.pci,
            "capability": {"v100-16": [7, 0], "a10": [8, 6]}[card.profile],
            "total": card.memory_mib * MIB,
            "used": sum(CONTEXT_BYTES + use for _, use in held),
            "processes": held,
            "older": held,
            "graphics": [],
        }


def test_nvml_utilisation(run: Run) -> None:
    before_us = time.time_ns() // 1000
    seen = json.loads(
        run([sys.executable, str(HERE / "nvml_cases.py"), "utilization", paths.libexec("mgpu-load")])
    )
    assert (seen["at_rest"], seen["other"]) == ([0, 0], [0, 0])
    assert seen["pids"] == [True]
    assert 0 < seen["used"][0] <= 100
    assert 0 < seen["gpustat"][0] <= 100
    assert seen["gpustat"][1:] == [0, 0]
    # A sample's time is that of the wall clock. A clock that is set meanwhile shows another second.
    assert before_us - 1_000_000 < seen["newest_us"] < time.time_ns() // 1000 + 1_000_000


def test_nvml_errors(nvml: Callable[..., Any]) -> None:
    misuse = ["Uninitialized", "InvalidArgument", "NotFound", "InvalidArgument"]
    unmeasured = ["NotSupported"] * 4
    assert nvml("errors") == [f"NVMLError_{name}" for name in (*misuse, *unmeasured, "Uninitialized")]


def test_nvml_says_what_cards_do_not_have(nvml: Callable[..., Any]) -> None:
    assert nvml("absent") == ["NVMLError_NotSupported"]


def test_nvml_says_what_cards_are_to_each_other(nvml: Callable[..., Any]) -> None:
    no, host_bridge, nvlink_2_0, gpu, unknown = 5, 30, 2, 0, 255
    assert nvml("peers") == {
        # Reads, writes, over NVLink, atomic; not by RM's mailboxes.
        "ways": [[0, 0, 0, 0, no], [no] * 5],
        "levels": [0, host_bridge],
        "nearest": [0, 2],
        "links": [
            {"active": 1, "version": nvlink_2_0, "can": [1, 0, 1], "type": gpu},
            {"active": 0, "version": nvlink_2_0, "can": [0, 0, 0], "type": unknown},
        ],
        "ends": True,
        "unlinked": "NVMLError_NotSupported",
    }


def test_nvml_after_fork(nvml: Callable[..., Any]) -> None:
    assert nvml("fork") == [0, "Tesla V100-SXM2-16GB"]


def test_libraries_without_a_driver() -> None:
    """On a machine without nodes both say that there is no driver, and nothing is made under /dev."""
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("this machine has NVIDIA nodes")
    for script, case, expected in (
        ("nvml_cases.py", "no_driver", "NVMLError_DriverNotLoaded"),
        ("cuda_cases.py", "devices", 100),
    ):
        printed = run(sys.executable, HERE / script, case, env=library_environment())
        assert json.loads(printed) == expected
    assert not os.path.exists("/dev/nvidiactl")


def test_gpustat(supervised: Callable[[list[str]], list[str]], run: Run) -> None:
    with _holder(supervised) as pid:
        seen = json.loads(run([sys.executable, "-m", "gpustat", "--json"]))
    assert [gpu["memory.total"] for gpu in seen["gpus"]] == [16160, 16160, 22731]
    assert [gpu["memory.used"] for gpu in seen["gpus"]] == [1224, 0, 0]
    assert [process["pid"] for process in seen["gpus"][0]["processes"]] == [pid]


def test_nvitop(supervised: Callable[[list[str]], list[str]], run: Run) -> None:
    with _holder(supervised) as pid:
        table = run([sys.executable, "-m", "nvitop", "-1"], COLUMNS="120", TERM="dumb")
    assert "580.95.05" in table
    assert "1224MiB / 16160MiB" in table
    assert any(str(pid) in line and "1024MiB" in line for line in table.splitlines())


@pytest.mark.parametrize("library", ["libcuda.so.1", "libnvidia-ml.so.1"])
def test_libraries_export_their_interface_only_and_run_on_old_glibc(library: str) -> None:
    symbols = run("objdump", "-T", paths.lib(f"sim/{library}"))
    rows = [line.split() for line in symbols.splitlines() if " g " in line or "*UND*" in line]
    exported = {row[-1] for row in rows if "*UND*" not in row}
    prefix = "cu" if library.startswith("libcuda") else "nvml"
    assert exported
    assert all(name.startswith(prefix) for name in exported)
    needed = {row[-2].strip("()") for row in rows if "*UND*" in row and "GLIBC_" in row[-2]}
    versions = {tuple(int(part) for part in name.removeprefix("GLIBC_").split(".")) for name in needed}
    assert max(versions) <= (2, 17)
