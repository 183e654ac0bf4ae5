"""Open files that the kernel keeps from processes without a grant (BPF LSM, file_receive)."""

import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.claims import decides
from lab.guest import boxes, served
from lab.guest.passed import NODES, sent
from lab.tests.under_mgpu import LIMIT_S, until

RECEIVE = Path("/sys/fs/bpf/mgpu/receive")


@contextmanager
def stranger(verb: str) -> Iterator[tuple[subprocess.Popen[str], socket.socket]]:
    """A process in a pid namespace of its own, which no grant has, and a socket to it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    argv = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-m", "lab.guest.passed", verb]
    with ours, theirs:
        process = subprocess.Popen(
            [*argv, str(theirs.fileno())], pass_fds=[theirs.fileno()], stdout=subprocess.PIPE, text=True
        )
        try:
            yield process, ours
        finally:
            process.kill()
            process.wait()


def says(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def none_by_message() -> None:
    for node, received in (*((node, 0) for node in NODES), ("/dev/null", 1)):
        file = os.open(node, os.O_RDWR)
        with stranger("receive") as (process, over):
            sent(over, [file])
            assert says(process) == f"received {received}", node
        # It keeps the message for as long as it likes: nobody sees the file there, and it gets at none.
        with stranger("hide") as (process, over):
            sent(over, [file])
            assert [says(process), says(process)] == [f"received {received}"] * 2, node
        os.close(file)


def none_by_pidfd(pid: int) -> None:
    """By root, which may trace the container's process."""
    [number] = [
        name
        for name in os.listdir(f"/proc/{pid}/fd")
        if os.readlink(f"/proc/{pid}/fd/{name}") == "/dev/nvidiactl"
    ]
    pidfd = os.pidfd_open(pid)
    with stranger("take") as (process, over):
        sent(over, [pidfd], number.encode())
        assert says(process) == f"taken {-errno.EPERM}"
    os.close(pidfd)


def next_mgpud() -> None:
    before = boxes.serving()
    os.kill(before, signal.SIGKILL)
    none_by_message()
    until(lambda: boxes.serving() != before, "there is no next mgpud")
    served.wait()


@decides(long=True, limit_s=2 * LIMIT_S)
def strangers_receive_no_file() -> None:
    product = boxes.product()
    assert "bpf" in Path("/sys/kernel/security/lsm").read_text().split(",")
    assert RECEIVE.exists(), served.LOG.read_text()[-600:]
    with product.container(boxes.inside("beat", "64"), memory_mib=256) as box:
        boxes.told(box)
        [pid] = boxes.pids(box)
        none_by_message()
        none_by_pidfd(pid)
        next_mgpud()
        none_by_pidfd(pid)
        assert box.process.poll() is None, "the container was ended"


@decides(long=True, limit_s=2 * LIMIT_S)
def containers_pass_their_files() -> None:
    """Between their processes, also to one in a pid namespace below, and after a restart of mgpud."""
    product = boxes.product()
    words = ["env", "PYTHONPATH=/lab", "python3", "-m", "lab.guest.passed", "among"]
    for _ in range(2):
        with product.container(words, memory_mib=256) as box:
            said = boxes.told(box)
            assert said == {"message": len(NODES), "pidfd": len(NODES), "below": len(NODES)}, said
        next_mgpud()
