"""Processes that get open files from others: `python3 -m lab.guest.passed VERB [DESCRIPTOR]`.

Each says how many it has received, of messages on that socket.
"""

import array
import ctypes
import json
import os
import socket
import sys
from collections.abc import Callable, Sequence

NODES = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm")
PIDFD_GETFD, CLONE_NEWUSER, CLONE_NEWPID = 438, 0x10000000, 0x20000000
LIBC = ctypes.CDLL(None, use_errno=True)


def got(over: socket.socket, flags: int = 0) -> "tuple[bytes, array.array[int]]":
    files = array.array("i")
    said, rights, _, _ = over.recvmsg(64, socket.CMSG_SPACE(16 * 4), flags)
    for _, _, data in rights:
        files.frombytes(data[: len(data) // 4 * 4])
    return said, files


def sent(over: socket.socket, files: Sequence[int], text: bytes = b"x") -> None:
    over.sendmsg([text], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))])


def taken(pidfd: int, number: int) -> int:
    """A negative errno where it is refused."""
    found = LIBC.syscall(PIDFD_GETFD, pidfd, number, 0)
    return -ctypes.get_errno() if found < 0 else int(found)


def receive(over: socket.socket) -> None:
    print("received", len(got(over)[1]), flush=True)


def hide(over: socket.socket) -> None:
    """The message stays where it is, and is looked at and then received."""
    print("received", len(got(over, socket.MSG_PEEK)[1]), flush=True)
    receive(over)


def take(over: socket.socket) -> None:
    """By pidfd_getfd, of the process and the number that it is told."""
    number, [pidfd] = got(over)
    print("taken", taken(pidfd, int(number)), flush=True)


def in_child(work: Callable[[], int]) -> int:
    pid = os.fork()
    if pid == 0:
        os._exit(work())
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def among() -> None:
    """A container's own processes pass its files on, to one in a pid namespace below too."""
    files = [os.open(node, os.O_RDWR) for node in NODES]
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    me = os.pidfd_open(os.getpid())

    def by_message() -> int:
        return len(got(theirs)[1])

    def by_pidfd() -> int:
        return sum(taken(me, file) >= 0 for file in files)

    def below() -> int:
        if LIBC.unshare(CLONE_NEWUSER | CLONE_NEWPID):
            return 100 + ctypes.get_errno()
        return in_child(by_message)

    said = {}
    sent(ours, files)
    said["message"] = in_child(by_message)
    said["pidfd"] = in_child(by_pidfd)
    sent(ours, files)
    said["below"] = in_child(below)
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "among":
        among()
    else:
        {"receive": receive, "hide": hide, "take": take}[sys.argv[1]](socket.socket(fileno=int(sys.argv[2])))
