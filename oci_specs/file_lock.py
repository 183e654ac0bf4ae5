"""A lock on a file, which the kernel gives back with its owner's last descriptor."""

import fcntl


def taken(descriptor: int) -> bool:
    """Whether this open file has the lock now: it waits for no other that has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
