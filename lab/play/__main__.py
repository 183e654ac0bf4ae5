"""Plays scripts on a driver and prints the results: the nodes of the kernel's, or a simulated card's.

python -m lab.play [--card SOCKET] [SCRIPT...]. It needs nothing but Python, since it runs in a guest too.
"""

import argparse
from pathlib import Path

from lab.play.kernel import Kernel
from lab.play.playing import played
from lab.play.simcard import SimCard

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--card", type=Path)
    parser.add_argument("scripts", nargs="*")
    arguments = parser.parse_args()
    for row in played(SimCard(arguments.card) if arguments.card else Kernel(), arguments.scripts):
        print("\t".join(row), flush=True)
