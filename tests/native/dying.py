"""An engine that dies in the middle of a call: in a process of its own, as it asks the driver."""

import os
import signal
import traceback
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass

from tests.native.nvidia_mediated import Tenant, World
from tests.native.uvm_asked import has_handled
from tests.support.waiting import readable, until

WAIT_S = 60.0
SERVES = b"it serves"
SAID_MAX_BYTES = 1 << 16


@dataclass
class Mortal:
    """The engine that serves. kept: what the driver knows as it dies; over: a word of it has it die at
    once."""

    here: World
    pid: int
    kept: int
    over: int

    def dies(self, call: Future[tuple[int, int]]) -> bool:
        """Waits for its death, or the end of the call. False: it has served the call, and dies then."""
        pidfd = os.pidfd_open(self.pid)
        try:
            until(lambda: readable(pidfd, 0) or call.done(), "it dies", timeout_s=WAIT_S, poll_s=0.001)
            served = not readable(pidfd, 0)
        finally:
            os.close(pidfd)
        if served:
            os.write(self.over, b"x")
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        assert status == 0, f"{status:#x}"
        assert self.here.lib.on_card_outlives(self.kept) == 0
        return not served


@contextmanager
def mortal(here: World, nth: int, *, answered: bool) -> Iterator[Mortal]:
    """The next engine, which dies in its nth call of the driver: before it is asked, or once it has answered.

    The one after it is begun by who asks for this one, with here.goes_on().
    """
    here.ends()
    kept = os.memfd_create("kept")
    hears, over = os.pipe()
    tells, ready = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(over)
            here.goes_on()
            here.lib.on_card_dies(kept, nth, answered)
            os.write(ready, SERVES)
            os.read(hears, 1)
            here.lib.on_card_dies(kept, 0, answered)
        except BaseException:
            os.write(ready, traceback.format_exc().encode())
        finally:
            os._exit(1)
    os.close(ready)
    made = Mortal(here, pid, kept, over)
    try:
        said = os.read(tells, SAID_MAX_BYTES)
        # Nothing: a call that was waiting already has had it die, at which dies() looks.
        assert said in (SERVES, b""), said.decode()
        yield made
    finally:
        if made.pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        for fd in (kept, hears, over, tells):
            os.close(fd)


def tear(tenant: Tenant, number: signal.Signals = signal.SIGUSR1) -> None:
    """Out of the call that it waits in, which it makes again; SIGUSR2: which ends with EINTR."""
    os.kill(tenant.pid, number)
    until(lambda: has_handled(tenant.pid, number), "it has been torn away")
