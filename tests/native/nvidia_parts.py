"""The NVIDIA driver's C parts as a library, its resource manager in Python, and processes that hold files."""

import ctypes
import functools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.native import engine_parts

CTL, CARD, UVM = 0, 1, 2

# A process that does with descriptors what it is told, a line at a time. Descriptor 3 is a socket, where it
# has one.
PROCESS = """
import array, os, socket, sys
kept = socket.socket(fileno=os.dup(3)) if "socket" in sys.argv else None
if kept:
    os.close(3)
print(os.getpid(), flush=True)
for line in sys.stdin:
    what, *args = line.split()
    n = [int(a) for a in args if a.isdigit()]
    out = 0
    if what == "open":
        out = os.open(args[0], os.O_RDWR)
    elif what == "dup":
        out = os.dup(n[0])
    elif what == "dup2":
        out = os.dup2(n[0], n[1])
    elif what == "close":
        os.close(n[0])
    elif what == "send":
        kept.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [n[0]]))])
    elif what == "receive":
        data, rights, _, _ = kept.recvmsg(1, 64)
        out = array.array("i", rights[0][2][:4])[0]
    elif what == "map":
        # mmap's own duplicates the descriptor.
        import ctypes
        libc = ctypes.CDLL(None)
        libc.mmap.restype = ctypes.c_void_p
        mapping = ctypes.c_void_p(libc.mmap(None, 4096, 3, 1, n[0], 0))
    elif what == "unmap":
        libc.munmap(mapping, 4096)
    elif what == "begin":
        # A call that waits for as long as the file is locked by another.
        import fcntl, threading
        threading.Thread(target=fcntl.flock, args=(n[0], fcntl.LOCK_EX), daemon=True).start()
    elif what == "churn":
        import threading
        def churn(path=args[0]):
            while True:
                os.close(os.open(path, os.O_RDWR))
        threading.Thread(target=churn, daemon=True).start()
    elif what == "hammer":
        import threading, time
        def hammer(fd=n[0]):
            while True:
                kept.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
                os.close(fd)
                time.sleep(0.001)
                _, rights, _, _ = kept.recvmsg(1, 64)
                fd = array.array("i", rights[0][2][:4])[0]
        threading.Thread(target=hammer, daemon=True).start()
    elif what == "fork":
        out = os.fork()
        if out == 0:
            while True:
                import signal
                signal.pause()
    print(out, flush=True)
"""


class Process:
    """A process of a tenant."""

    def __init__(self, socket: int | None = None) -> None:
        """With `socket` it can send and receive files through it."""
        argv = [sys.executable, "-ISc", PROCESS]
        before = None
        if socket is not None:
            argv.append("socket")

            def before() -> None:
                os.dup2(socket, 3)

        environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env=environment,
            preexec_fn=before,
            pass_fds=() if socket is None else (3,),
        )
        self.pid = self._answer()

    def _answer(self) -> int:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process has died"
        return int(line)

    def tell(self, *what: object) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, what)) + "\n")
        return self._answer()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def end(self) -> None:
        """Kill it, unless that has been done."""
        if self._process.returncode is None:
            self.kill()


@contextmanager
def processes() -> Iterator[Callable[..., Process]]:
    """Start processes that end with the block."""
    with ExitStack() as stack:

        def start(socket: int | None = None) -> Process:
            process = Process(socket)
            stack.callback(process.end)
            return process

        yield start


@functools.cache
def library() -> ctypes.CDLL:
    """The driver and its harness."""
    lib = ctypes.CDLL(engine_parts.library("libnvidia.so", Path(__file__).with_name("nvidia_harness.c")))
    for name in ("identify", "sweep", "next_closed", "userd", "decode", "weak", "let_go"):
        getattr(lib, f"harness_{name}").restype = ctypes.c_int64
    lib.harness_open.restype = ctypes.c_void_p
    return lib


IOCTL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)
Answer = Callable[[int, int, int], int]


class Driver:
    """The driver over the nodes in `folder`: pollable files of which every open() makes another one."""

    def __init__(self, folder: Path, answer: Answer) -> None:
        self.lib = library()
        self.nodes = {CTL: folder / "ctl", CARD: folder / "card", UVM: Path("/dev/null")}
        self.folder = folder
        self._answer = IOCTL(answer)
        error = ctypes.c_int()
        for name in ("dev", "pci"):
            (folder / name).mkdir(exist_ok=True)
        for name in ("nvidiactl", "nvidia0"):
            (folder / "dev" / name).touch()
        self._handle = self.lib.harness_open(
            *(os.fsencode(folder / name) for name in ("dev", "pci", "majors")),
            self._answer,
            ctypes.byref(error),
        )
        if not self._handle:
            raise OSError(-error.value, os.strerror(-error.value))
        for kind in (CTL, CARD):
            if not self.nodes[kind].exists():
                os.mkfifo(self.nodes[kind])
            assert self.lib.harness_node(os.fsencode(self.nodes[kind]), kind, 0) == 0

    def close(self) -> None:
        self.lib.harness_close(ctypes.c_void_p(self._handle))

    def call(self, name: str, *args: Any) -> int:
        return int(getattr(self.lib, f"harness_{name}")(ctypes.c_void_p(self._handle), *args))

    def add_card(self, index: int, *, minor: int = 0, instance: tuple[int, int] = (-1, -1)) -> None:
        """instance: of MIG, (GPU instance, compute instance)."""
        self.call("add_card", index, minor, *instance)

    def identify(self, process: Process, fd: int, tenant: int = 0) -> int:
        return self.call("identify", tenant, process.pid, fd)

    def fetch(self, file: int) -> int:
        """0 when the file could be fetched, or a negative errno."""
        fd = self.call("fetch", ctypes.c_int64(file))
        if fd < 0:
            return fd
        os.close(fd)
        return 0

    def gone(self) -> set[int]:
        """What is gone by now."""
        ended = set()
        while file := self.call("sweep"):
            assert file > 0
            ended.add(file)
        return ended


@contextmanager
def driver(folder: Path, answer: Answer = lambda fd, cmd, arg: 0) -> Iterator[Driver]:
    opened = Driver(folder, answer)
    try:
        yield opened
    finally:
        opened.close()
