"""Runs a command whose output is printed when it has ended, and says meanwhile how far its tests are.

python -m tests.support.told NAME LOG EVERY_S COMMAND...
"""

import re
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

# A file's line of pytest's, or one that goes on with it: the file, a letter for each test, how far that is.
_LINE = re.compile(r"^(?:(tests/\S+\.py) )?([.FEsxX]*)(?: +\[ *(\d+)%\])?$", re.MULTILINE)
_SHOWN = 90


def how_far(text: str) -> str:
    """By pytest's output so far; before the first test, and beside what tests print, its last line."""
    tests, file, percent = 0, "", ""
    for found in _LINE.finditer(text):
        tests += len(found[2])
        file, percent = found[1] or file, found[3] or percent
    last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "nothing yet")
    at = file if file and _LINE.match(text.splitlines()[-1]) else last[:_SHOWN]
    return f"{tests} tests{percent and f', {percent} %'}, at {at}"


def main() -> int:
    name, log, every_s, *command = sys.argv[1:]
    began_s = time.monotonic()
    with open(log, "wb") as out:
        # make's own descriptors go on to a make below.
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, close_fds=False)
    while process.poll() is None:
        # ^C is the command's too, which has an end to come to.
        with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            process.wait(float(every_s))
            break
        minutes = (time.monotonic() - began_s) / 60
        print(f"{name}, {minutes:.0f} min: {how_far(Path(log).read_text(errors='replace'))}", flush=True)
    sys.stdout.buffer.write(Path(log).read_bytes())
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


if __name__ == "__main__":
    sys.exit(main())
