"""Containers of an instant: what mgpud, the holder and the card see of one, without a runtime in between."""

import ctypes
import json
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from tests.support import host
from tests.support.arbiter import Arbiter
from tests.support.programs import Programs
from tests.support.started import Foreground, foreground

_PIDFD_GETFD = 438


def _fetch(pid: int, fd: int) -> int:
    """A copy of another process's descriptor."""
    pidfd = os.pidfd_open(pid)
    try:
        found = int(ctypes.CDLL(None, use_errno=True).syscall(_PIDFD_GETFD, pidfd, fd, 0))
    finally:
        os.close(pidfd)
    assert found >= 0, os.strerror(ctypes.get_errno())
    return found


class Life:
    """One container: granted, bound, its listener with the holder. Its process waits to be told."""

    def __init__(self, mgpu: Arbiter, running: Foreground, name: str, card: int) -> None:
        self._running = running
        self.name = name
        running.tell("life")
        word, pid, fd = running.line().split()
        assert word == "born"
        state = {
            "ociVersion": "1.0.2",
            "id": self.name,
            "status": "creating",
            "pid": int(pid),
            "bundle": "/",
        }
        asked: dict[str, Any] = {
            "container_id": self.name,
            "bundle": "/",
            "rootfs": "/",
            "annotations": {},
            "env": {
                "MGPU_MEMORY_MIB": "1024",
                "MGPU_POLICY": "native-burst-share",
                "NVIDIA_VISIBLE_DEVICES": str(card),
            },
            "reach": [],
            "seccomp_listener": None,
        }
        nonce = mgpu.ask("admit", **asked, runtime_pid=int(pid))["grant"]["nonce"]
        mgpu.ask("bind", nonce=nonce, state=state)
        message = {"fds": ["seccompFd"], "pid": int(pid), "metadata": nonce, "state": state}
        listener = _fetch(int(pid), int(fd))
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
                link.connect(str(mgpu.root / "seccomp.sock"))
                socket.send_fds(link, [json.dumps(message).encode()], [listener])
        finally:
            os.close(listener)

    def work(self) -> None:
        """Opens files, allocates and frees, has the card execute a kernel."""
        self._do("work")

    def call(self) -> None:
        """One allocation more."""
        self._do("call")

    def _do(self, word: str) -> None:
        self._running.tell(word)
        said = self._running.line()
        assert said == "done", f"{self.name}: {said}"

    def end(self) -> None:
        """Its process is gone; what it had ends after that."""
        self._running.tell("end")
        assert self._running.line() == "gone"


class Nursery:
    """Where they come from, one at a time. card: theirs."""

    def __init__(self, mgpu: Arbiter, running: Foreground, name: str, card: int) -> None:
        self._mgpu = mgpu
        self._running = running
        self._name = name
        self._card = card
        self.lives = 0

    def begin(self) -> Life:
        self.lives += 1
        return Life(self._mgpu, self._running, f"{self._name}-{self.lives}", self._card)


@contextmanager
def nursery(mgpu: Arbiter, built: Programs, card: int = 0) -> Iterator[Nursery]:
    with ExitStack() as stack:
        root = stack.enter_context(host.home("brief"))
        (root / "dev").mkdir()
        for name in ("nvidiactl", "nvidia-uvm", f"nvidia{card}"):
            os.mknod(root / "dev" / name, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        if card:
            # The program knows one name of a card's node.
            os.link(root / "dev" / f"nvidia{card}", root / "dev" / "nvidia0")
        running = stack.enter_context(foreground([built.folder / "brief", root, str(card)]))
        yield Nursery(mgpu, running, root.name, card)
