"""Tests of a mistaken arbiter: in a mount namespace of their own, where the mistake lies over the source and
its build over what is installed. Nothing of the work tree or of its build changes.

A test of lab/tests is run in the laboratory's guest, with the mistaken engine.

As a program: `python -m tests.mutants.world NAME TEST...` inside such a namespace. Its exit status is
pytest's.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.mutants.mutant import LAB, Mutant, mutants
from tests.support.commands import attempt
from tests.support.places import PREFIX, REPOSITORY

MESON = REPOSITORY / "build" / "meson"
ENGINE = Path("native_sched/libmgpu_engine.so")
INSTALLED = PREFIX / "lib" / "mgpu" / ENGINE.name
# pytest's, of tests that ran.
PASSED, FAILED = 0, 1
BUILD_FAILED, GUEST_FAILED = 100, 101
# A slow machine says nothing of the mistake, and neither does one without the test image.
NOT_OF_IT = ("from pytest-timeout", "run the tests with make test")
SHOWN_LINES = 15


class NotRunError(Exception):
    """Neither passed nor failed: what it said."""


def seen(mutant: Mutant, *tests: str) -> str | None:
    """What the first of the tests to fail says, or None. NotRunError: it does not compile, or none ran."""
    inside = [sys.executable, "-m", "tests.mutants.world", mutant.name, *tests]
    argv = ["unshare", "--mount", "--propagation", "slave", *inside]
    done = attempt(*argv, cwd=REPOSITORY, timeout_s=3600)
    if done.status not in (PASSED, FAILED) or any(words in done.out for words in NOT_OF_IT):
        said = (done.out + done.err).strip().splitlines()[-SHOWN_LINES:]
        raise NotRunError("\n".join([f"{mutant.name}: {' '.join(tests)}: status {done.status}", *said]))
    if done.status == PASSED:
        return None
    lines = [line for line in done.out.splitlines() if line.startswith(("E  ", "FAILED", "ERROR"))]
    return "\n".join(lines[:SHOWN_LINES])


def _bind(source: Path, over: Path) -> None:
    subprocess.run(["mount", "--bind", source, over], check=True)


def _run(name: str, tests: list[str], scratch: Path) -> int:
    mutant = next(one for one in mutants() if one.name == name)
    mistaken = scratch / "mistaken"
    mistaken.write_text(mutant.text())
    shutil.copytree(MESON, scratch / "meson", symlinks=True)
    _bind(mistaken, REPOSITORY / mutant.path)
    _bind(scratch / "meson", MESON)
    ninja = Path(sys.executable).with_name("ninja")
    if subprocess.run([ninja, "-C", MESON, ENGINE], check=False).returncode:
        return BUILD_FAILED
    # Before it lies over what is installed: of that the guest's disk is made, and kept.
    if all(test.startswith(LAB) for test in tests):
        return _judged_in_a_guest(tests)
    _bind(MESON / ENGINE, INSTALLED)
    pytest = [sys.executable, "-m", "pytest", "-q", "-x", "--timeout=280", "-p", "no:cacheprovider"]
    return subprocess.run([*pytest, *tests], cwd=REPOSITORY, check=False).returncode


def _judged_in_a_guest(tests: list[str]) -> int:
    named = [test.removeprefix(LAB).replace(".py::", ".") for test in tests]
    words: list[str | Path] = [sys.executable, "-m", "lab", "--engine", MESON / ENGINE, *named]
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    found = [
        line.removeprefix("lab: ") for line in done.stdout.splitlines() if line.startswith("lab: FAILED")
    ]
    print("\n".join(found) or done.stdout + done.stderr)
    return FAILED if found else done.returncode and GUEST_FAILED


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="mgpu-mutant-") as scratch:
        return _run(sys.argv[1], sys.argv[2:], Path(scratch))


if __name__ == "__main__":
    sys.exit(main())
