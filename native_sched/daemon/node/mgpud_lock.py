"""mgpud's lock: the mgpud that holds it serves. The kernel gives it back with the holder's last thread, so
no mgpud begins while a thread of the previous one may still be in a call for a container.
"""

import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from native_sched.daemon.node import process_id
from oci_specs import file_lock
from oci_specs.refusal import Refusal

# The previous mgpud is dead already when the holder welcomes the next; what is left is the kernel's clearing
# up.
TIMEOUT_S = 10.0
_LOOK_S = 0.01


@contextmanager
def held(path: str, *, fence: bool = False, timeout_s: float = TIMEOUT_S) -> Iterator[None]:
    """Holds the lock; Refusal when another process has it for longer than timeout_s.

    fence: end that process first. It has to be one that cannot be reached in another way.
    """
    # O_CLOEXEC, by Python's own doing: a child that outlived mgpud would hold the lock for it.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not file_lock.taken(descriptor):
            if fence:
                _end(descriptor)
            _wait(descriptor, path, timeout_s)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} {process_id.start_time(os.getpid())}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _wait(descriptor: int, path: str, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not file_lock.taken(descriptor):
        if time.monotonic() >= deadline:
            raise Refusal(
                "mgpud-lock",
                f"another mgpud (pid {_owner(descriptor)[0] or 'unknown'}) holds {path}",
                "stop that one, then start this one",
            )
        time.sleep(_LOOK_S)


def _owner(descriptor: int) -> tuple[int, int]:
    """(pid, start time) as the owner wrote them; (0, 0) where there is nothing of the kind."""
    words = os.pread(descriptor, 64, 0).decode("ascii", "replace").split()
    if len(words) == 2 and all(word.isdecimal() for word in words):
        return int(words[0]), int(words[1])
    return 0, 0


def _end(descriptor: int) -> None:
    pid, started = _owner(descriptor)
    if not (pid and started):
        return
    with suppress(ProcessLookupError):
        pidfd = process_id.open_process(pid, started)
        try:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            ended = select.poll()
            ended.register(pidfd, select.POLLIN)
            ended.poll(TIMEOUT_S * 1000)
        finally:
            os.close(pidfd)
