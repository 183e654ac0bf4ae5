"""`make demo`, the first that people see of mgpu: all that it promises holds."""

import sys

from tests.support.commands import attempt
from tests.support.places import REPOSITORY


def test_demo_keeps_its_promises() -> None:
    done = attempt(sys.executable, "-m", "demo", cwd=REPOSITORY)
    assert done.status == 0, done
    assert "promises held" in done.out
