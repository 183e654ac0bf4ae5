"""What NVIDIA's own programs were seen to ask the driver is served or answered, or it is said why not.

From UniStuttgart-IKR/Leandro, matrix/catalog-610.57.04.md (commit 047aea1): the calls of RM and nvidia-uvm
that CUDA, OpenCL and NVML made on an RTX 2070. From nestrilabs/virtio-nvgpu, gen/rmallow/observed.txt
(commit 0869ef90, Apache-2.0): those that 106 runs of CUDA, Vulkan, browsers and others made on an RTX 5090,
from 595.99 on.
From our own recorder: those of 18 kinds of programs on an H200, with 580.159.04.
"""

from pathlib import Path

import pytest

from tests.support import rm_interface
from tests.support.rm_numbers import NVB8B0_VIDEO_DECODER
from tests.support.tsv import read

HERE = Path(__file__).parent
OBSERVED = HERE / "observed-610.tsv"
RTX_5090 = HERE / "observed-rtx-5090.tsv"
H200 = HERE / "observed-580-h200.tsv"
VERSION = (610, 57)
NO_REASON = "-"
# Made by ALLOC_MEMORY alone, which is served.
MEMORY_OF_THE_CALLERS = 0x71
Fields = dict[str, str]


def served(
    version: tuple[int, int] = VERSION, *, whole: bool = False, capability: str = ""
) -> dict[str, set[int]]:
    """Numbers by kind, of whatever is not refused to a share with that driver capability. whole: to whole
    cards, with all.
    """
    interface = rm_interface.read()
    alive = [
        item
        for items in (
            interface.classes,
            interface.controls,
            interface.escapes,
            interface.uvm,
        )
        for item in items
        if interface.lives_at(item.name, version)
        and item.disposition != "REFUSED"
        and (whole or not item.whole)
        and (whole or not item.capability or (capability and capability in item.capability))
    ]
    of = {
        kind: {item.number for item in alive if item in items}
        for kind, items in (
            ("class", interface.classes),
            ("control", interface.controls),
            ("escape", interface.escapes),
            ("uvm", interface.uvm),
        )
    }
    of["class"].add(MEMORY_OF_THE_CALLERS)
    return of


def amiss(rows: list[Fields], version: tuple[int, int] = VERSION) -> list[str]:
    of = served(version)
    found = []
    for row in rows:
        number, reason = int(row["number"], 16), row["reason"]
        if (number in of[row["kind"]]) != (reason == NO_REASON):
            why = (
                f"refused without a reason, to {row['by']}"
                if reason == NO_REASON
                else f"served, yet: {reason}"
            )
            found.append(f"{row['kind']} {row['number']} {row['symbol']}: {why}")
    return found


@pytest.mark.parametrize(
    ("path", "version"),
    [
        (OBSERVED, VERSION),
        (H200, (580, 159)),
        (RTX_5090, (595, 99)),
        (RTX_5090, (610, 57)),
        (RTX_5090, (615, 71)),
    ],
)
def test_each_call_is_served_or_refused_with_a_reason(path: Path, version: tuple[int, int]) -> None:
    rows = read(path)
    wrong = amiss(rows, version)
    assert not wrong, "\n".join(wrong)
    refused = [row for row in rows if row["reason"] != NO_REASON]
    print(f"{len(rows)} calls, {len(refused)} refused:")
    for row in refused:
        print(f"{row['kind']} {row['number']} {row['symbol']}: {row['reason']}")


def test_what_a_decoder_calls_is_served_with_whole_cards() -> None:
    """But for one control, which libcuda does without."""
    rows = [row for row in read(H200) if "nvdec" in row["by"].split(",")]
    assert len(rows) > 100
    whole, shared = served((580, 159), whole=True), served((580, 159))
    refused = {row["number"] for row in rows if int(row["number"], 16) not in whole[row["kind"]]}
    assert refused == {"0x20809038"}
    assert NVB8B0_VIDEO_DECODER in whole["class"] - shared["class"]


@pytest.mark.parametrize("whole", [False, True], ids=["share", "whole"])
def test_what_egl_and_vulkan_call_is_served_with_graphics(whole: bool) -> None:
    """But for these: the card's registers, in whose place the call gives a name of nothing; what has no name;
    and for a share libcuda's, which is below EGL too, and a table that a program may find full.
    """
    rows = [row for row in read(H200) if {"egl", "vulkan"} & set(row["by"].split(","))]
    assert len(rows) > 140
    of = served((580, 159), whole=whole, capability="graphics")
    refused = {row["number"] for row in rows if int(row["number"], 16) not in of[row["kind"]]}
    of_shares = set() if whole else {"0x503c", "0x503c0102", "0x90960101"}
    assert refused == of_shares | {"0x3f", "0x2080a0d1", "0x20810107"}


@pytest.mark.parametrize(
    ("path", "programs", "refused"),
    [
        (OBSERVED, {"cuda", "opencl"}, set()),
        (
            H200,
            {"cuda", "torch", "torch.profiler", "nccl", "triton", "jax"},
            {
                ("class", "0x503c"),
                ("class", "0xc639"),
                ("class", "0xc640"),
                ("control", "0xde0001"),
                ("control", "0x20809038"),
                ("control", "0x503c0102"),
                ("control", "0x503c0104"),
                ("control", "0x503c0105"),
            },
        ),
    ],
)
def test_calls_that_cuda_needs_are_served(
    path: Path, programs: set[str], refused: set[tuple[str, str]]
) -> None:
    """Of those that computing programs ask, all but these, without which they run."""
    found = {
        (row["kind"], row["number"])
        for row in read(path)
        if row["reason"] != NO_REASON and programs & set(row["by"].split(","))
    }
    assert found == refused


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"number": "0x20802087", "reason": NO_REASON}, "refused without a reason"),
        ({"number": "0x20800110", "reason": "somebody thought so"}, "served, yet"),
        ({"kind": "escape", "number": "0x59", "reason": NO_REASON}, "refused without a reason"),
    ],
)
def test_seeded_mistake_is_seen(change: Fields, said: str) -> None:
    row = {"kind": "control", "symbol": "-", "by": "cuda"} | change
    (line,) = amiss([row])
    assert said in line
