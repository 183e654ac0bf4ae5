"""Recorded programs of EGL and Vulkan through filter, mediator and simulated card, in a share with graphics:
what succeeded natively succeeds here, but for calls that each have a reason.
"""

from pathlib import Path

import pytest

from tests.recordings.playing import came_to, played
from tests.recordings.script import H200_VERSION, WITH_PARAMS_VERSION, differences, expected, recorded
from tests.support import arbiter
from tests.support.programs import Programs

HERE = Path(__file__).parent
ENV = {"NVIDIA_DRIVER_CAPABILITIES": "compute,utility,graphics"}
CONTROL = "NV_ESC_RM_CONTROL"
# What a call comes to here, and why, beside those of libcuda (differs.tsv).
ELSEWHERE = ("errno 14", "a list is where the recorded program had it")
ANOTHER = ("status 0x1f", "the simulated card has another number of RM's")
NO_NAME = ("status 0x56", "no header has a name of it: refused")
DIFFERS = {
    f"{CONTROL} 0x90960101": ("status 0x1a", "the card's colours to clear with are not a share's to add to"),
    f"{CONTROL} 0x2080a0d1": NO_NAME,
    f"{CONTROL} 0x20810107": NO_NAME,
    f"{CONTROL} 0x205": ("status 0x0", "the recorded machine has HMM"),
    "UVM_MM_INITIALIZE": ("status 0x10006", "the simulated driver has no HMM"),
    "NV_ESC_ATTACH_GPUS_TO_FD": ("errno 22", "the simulated card has another number of RM's"),
    f"{CONTROL} 0x21b": ANOTHER,
    f"{CONTROL} 0x216": ANOTHER,
    f"{CONTROL} 0x275": ANOTHER,
    f"{CONTROL} 0x3d05": ("status 0x3b", "it names the file by its number, which is another one"),
    "NV_ESC_RM_ALLOC 0x5": ("status 0x57", "it names a file's event by its number, which is another one"),
    f"{CONTROL} 0x801102": ELSEWHERE,
    f"{CONTROL} 0x801301": ELSEWHERE,
    f"{CONTROL} 0x801701": ELSEWHERE,
    f"{CONTROL} 0x80180d": ("status 0x1f", "the simulated card does not answer it"),
    f"{CONTROL} 0x801c02": ("status 0x0", "the simulated card answers it"),
    f"{CONTROL} 0x20802a03": ("status 0x56", "the simulated card does not answer it"),
    "NV_ESC_RM_ALLOC_MEMORY": ("status 0x56", "no process of the simulated driver's maps as its caller"),
}


@pytest.mark.parametrize("program", ["egl", "vulkan"])
def test_recorded_success_succeeds_with_graphics(private_host: None, built: Programs, program: str) -> None:
    rows = recorded(HERE / f"{program}-580.159.04-h200.tsv")
    with arbiter.running(
        "h200", sim_options=(f"driver-version={WITH_PARAMS_VERSION}", "rm-call-us=0")
    ) as mgpu:
        out, _ = played(mgpu, built, rows, env=ENV)
    found = came_to(out)
    amiss = [
        f"{row.row}: {row.call}: {found.get(row.row)}, expected {wanted}"
        for row in rows
        for wanted in [expected(row, differences(H200_VERSION))]
        if found.get(row.row) not in (wanted, DIFFERS.get(row.call, ("", ""))[0])
    ]
    assert not amiss, "\n".join(amiss)
