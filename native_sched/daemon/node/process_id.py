"""Processes as they are known across our own restarts: a pid alone may be another's by then."""

import fcntl
import os
import select
import signal
from contextlib import suppress

_PF_EXITING = 0x4

# Of ioctl_ns(2): a descriptor of the namespace above; EPERM above one's own.
_NS_GET_PARENT = 0xB702


def _stat(pid: int) -> list[bytes]:
    """Fields 3 and on of proc_pid_stat(5); ProcessLookupError."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name, in parentheses, may hold anything.
            return file.read().rpartition(b")")[2].split()
    except FileNotFoundError as error:
        raise ProcessLookupError(error.errno, error.strerror) from error


def start_time(pid: int) -> int:
    """The process's start, in clock ticks since boot; ProcessLookupError."""
    return int(_stat(pid)[19])


def parent(pid: int) -> int:
    """ProcessLookupError."""
    return int(_stat(pid)[1])


def is_ending(pid: int) -> bool:
    """It is gone, or has begun to end: its threads may be gone before it is."""
    try:
        fields = _stat(pid)
    except ProcessLookupError:
        return True
    killed = int(fields[28]) >> (signal.SIGKILL - 1) & 1
    return fields[0] in (b"Z", b"X") or bool(int(fields[6]) & _PF_EXITING or killed)


def open_process(pid: int, start: int = 0) -> int:
    """A pidfd of the process that has the pid and, unless start is 0, started then; ProcessLookupError if it
    is gone.

    One that has ended and is only not waited for yet is gone.
    """
    fd = os.pidfd_open(pid)
    try:
        if start and start_time(pid) != start:
            raise ProcessLookupError(pid)
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        if poll.poll(0):
            raise ProcessLookupError(pid)
    except BaseException:
        os.close(fd)
        raise
    return fd


def pid_namespace(pid: int) -> int:
    """The inode of its pid namespace; 0: it is gone, or in ours."""
    try:
        found = os.stat(f"/proc/{pid}/ns/pid").st_ino
    except OSError:
        return 0
    return 0 if found == os.stat("/proc/self/ns/pid").st_ino else found


def is_inside(pid: int, init: int) -> bool:
    """Whether the process is in init's pid namespace, or in one below it; False when either is gone."""
    try:
        wanted = os.stat(f"/proc/{init}/ns/pid")
        pid_namespace = os.open(f"/proc/{pid}/ns/pid", os.O_RDONLY)
    except OSError:
        return False
    while not os.path.samestat(os.fstat(pid_namespace), wanted):
        try:
            above = fcntl.ioctl(pid_namespace, _NS_GET_PARENT)
        except OSError:
            return False
        finally:
            os.close(pid_namespace)
        pid_namespace = above
    os.close(pid_namespace)
    return True


def inside(init: int) -> list[tuple[int, int]]:
    """(pid, start time) of all processes in init's pid namespace, or in one below it."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal() and is_inside(int(name), init):
            with suppress(ProcessLookupError):
                found.append((int(name), start_time(int(name))))
    return found


def is_stopped(pid: int) -> bool:
    """By a signal, or by its tracer."""
    try:
        return _stat(pid)[0] in (b"T", b"t")
    except ProcessLookupError:
        return False


def program(pid: int) -> tuple[int, int] | None:
    """Device and inode of the file that it executes, by which a runtime is told from the container's own
    program; None where that cannot be seen.
    """
    try:
        file = os.stat(f"/proc/{pid}/exe")
    except OSError:
        return None
    return file.st_dev, file.st_ino


def lives(pid: int, start: int = 0) -> bool:
    try:
        os.close(open_process(pid, start))
    except ProcessLookupError:
        return False
    return True
