"""Processes as they are known across our own restarts: a pid alone may be another's by then."""

from __future__ import annotations

import os
import select


def start_time(pid: int) -> int:
    """The process's start, in clock ticks since boot (field 22 of proc_pid_stat(5)); ProcessLookupError."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name, in parentheses, may hold anything.
            return int(file.read().rpartition(b")")[2].split()[19])
    except FileNotFoundError as error:
        raise ProcessLookupError(error.errno, error.strerror) from error


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
