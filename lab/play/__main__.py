"""Plays scripts on a driver and prints the results: the nodes of the kernel's, or a simulated card's.

python -m lab.play [--card SOCKET] [SCRIPT...]. It needs nothing but Python, since it runs in a guest too.
"""

import argparse
from pathlib import Path

from lab.play.driver import Driver
from lab.play.kernel import Kernel
from lab.play.player import Player
from lab.play.script import cases
from lab.play.simcard import SimCard

HERE = Path(__file__).parent


def play(driver: Driver, only: list[str]) -> list[tuple[str, str, str]]:
    """(script.case, call, result)"""
    player = Player(driver)
    attached = player.know()
    rows = []
    for script, played in cases(HERE / "scripts").items():
        for case in played:
            name = f"{script}.{case.name}"
            if only and script not in only and name not in only:
                continue
            rows += [(name, call, result) for call, result in player.case(case)]
            print("\n".join("\t".join(row) for row in rows if row[0] == name), flush=True)
    driver.close(attached)
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--card", type=Path)
    parser.add_argument("scripts", nargs="*")
    arguments = parser.parse_args()
    play(SimCard(arguments.card) if arguments.card else Kernel(), arguments.scripts)
