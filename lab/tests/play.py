"""NVIDIA's driver answers to the scripts (lab/play/scripts) what is recorded of it."""

from lab.claims import decides
from lab.play import compare
from lab.play.kernel import Kernel
from lab.play.playing import played
from lab.tests.loaded import chip, params_bytes, version

RECORDED = (compare.DRIVER, "535.261.03")


@decides(drivers=RECORDED, limit_s=300, alone=True)
def answers_are_those_recorded() -> None:
    """Decides no row: some of the answers are the firmware's."""
    rows = played(Kernel(), fb_info_bytes=params_bytes("NV2080_CTRL_CMD_FB_GET_INFO_V2"))
    found = compare.differ(
        compare.answers("\t".join(row) for row in rows), compare.recorded(version(), chip())
    )
    # As others.tsv has them, to be read in the guest's console.
    for (case, call, which), (said, listed) in found.items():
        print("\t".join(("played", case, call, str(which), listed, said)), flush=True)
    first = next(((*key, *pair) for key, pair in found.items()), ())
    assert not found, f"{len(found)} answers are not those that are recorded: {first}"
