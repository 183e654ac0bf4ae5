"""All that the scripts ask of a driver."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from lab.play.driver import Driver
from lab.play.player import Player
from lab.play.script import cases

SCRIPTS = Path(__file__).parent / "scripts"
# NV2080_CTRL_CMD_FB_GET_INFO_V2 of 550.
FB_INFO_BYTES = 444


def played(
    driver: Driver, only: Sequence[str] = (), fb_info_bytes: int = FB_INFO_BYTES
) -> Iterator[tuple[str, str, str]]:
    """script.case, call, result. only: scripts and cases; all of them without. fb_info_bytes: of the question
    that the player itself asks, as the driver has it; the scripts' are of the size that 550 has.
    """
    player = Player(driver, fb_info_bytes)
    attached = player.know()
    for script, some in cases(SCRIPTS).items():
        for case in some:
            name = f"{script}.{case.name}"
            if not only or script in only or name in only:
                for call, result in player.case(case):
                    yield name, call, result
    driver.close(attached)
