"""The nodes of a kernel driver: NVIDIA's own, where it is loaded."""

import ctypes
import fcntl
import os
import select
from dataclasses import dataclass

from lab.play.memory import Memory, libc

PATHS = {"ctl": "/dev/nvidiactl", "gpu": "/dev/nvidia0", "uvm": "/dev/nvidia-uvm"}
PIDFD_OPEN, PIDFD_GETFD = 434, 438


@dataclass
class File:
    fd: int
    id: int = 0


class Kernel:
    name = "kernel"

    def begin(self) -> None:
        """In a process of its own."""

    def open(self, node: str) -> File:
        return File(os.open(PATHS[node], os.O_RDWR | os.O_CLOEXEC))

    def close(self, file: File) -> None:
        os.close(file.fd)

    def fetch(self, pid: int, file: File) -> File:
        """As a supervisor takes a file of another process."""
        pidfd = libc.syscall(PIDFD_OPEN, pid, 0)
        fd = libc.syscall(PIDFD_GETFD, pidfd, file.fd, 0)
        error = ctypes.get_errno()
        os.close(pidfd)
        if fd < 0:
            raise OSError(error, os.strerror(error))
        return File(fd)

    def poll(self, file: File) -> None:
        with select.epoll() as epoll:
            epoll.register(file.fd, select.EPOLLIN)

    def ioctl(
        self,
        file: File,
        cmd: int,
        outer: bytearray | None,
        params: Memory | None,
        params_bytes: int,
        aux: File | None,
    ) -> None:
        """OSError as ioctl() fails. The answer is in outer and params."""
        fcntl.ioctl(file.fd, cmd, outer if outer is not None else 0)

    def await_closes(self, pid: int | None = None) -> None:
        """A close of the kernel's returns when it is done."""

    def map_at(self, file: File, linear: int) -> int:
        """Where what MAP_MEMORY has prepared is mapped."""
        return 0
