"""Commands of the node's own shell, and waiting."""

import subprocess
import time
from collections.abc import Callable


class CommandFailed(Exception):
    """A command, and all that it said."""


def run(*words: str) -> str:
    """Its output; CommandFailed when it does not end well."""
    done = subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise CommandFailed(
            f"{' '.join(words)[:200]}: {done.returncode}: {' | '.join(done.stdout.splitlines())}"
        )
    return done.stdout


def until(holds: Callable[[], object], what: str, within_s: float = 120) -> None:
    end = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"not in {within_s:g} s: {what}")
        time.sleep(0.2)
