"""What the simulated card answers to the scripts now."""

import os
import subprocess
import sys
from pathlib import Path

from lab.places import REPOSITORY
from lab.play import compare
from sim.cards import running

PLAYED_S = 400


def answers(folder: Path) -> compare.Answers:
    """By a process of its own, which forks. folder: the card's, for its socket."""
    options = ("--driver-version", compare.DRIVER)
    with running(folder, "a10", rm_call_us=0, options=options) as card:
        words = [sys.executable, "-m", "lab.play", "--card", os.fspath(card.card_socket)]
        done = subprocess.run(
            words, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=True, timeout=PLAYED_S
        )
    return compare.answers(done.stdout.splitlines())
