"""What must be tidied up even after SIGKILL: by a process that waits for the end of this one."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

ALL_IS_WELL = b"."
POLL_S = 0.01


@contextmanager
def if_killed(tidy_up: Callable[[], None]) -> Iterator[None]:
    """Have `tidy_up` done, in a child of this process, if this process ends within the block.

    Not on leaving the block in any way. What it prints goes nowhere. Only for programs without threads.
    """
    told, tell = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            os.close(tell)
            _wait(told, parent)
            tidy_up()
        finally:
            os._exit(0)
    os.close(told)
    try:
        yield
    finally:
        # The child may have been killed too.
        with suppress(BrokenPipeError):
            os.write(tell, ALL_IS_WELL)
        os.close(tell)
        os.waitpid(child, 0)


def _wait(told: int, parent: int) -> None:
    """Return when the parent was killed; exit when it says that all is well."""
    # Out of reach of the terminal's ^C and hang-up, and no reader of a pipe waits for this process.
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nowhere, descriptor)
    if os.read(told, 1) == ALL_IS_WELL:
        os._exit(0)
    # Descriptors are closed first; children get their parent-death signals at the moment they change parents.
    while os.getppid() == parent:
        time.sleep(POLL_S)
