"""A container by each way that a Debian node has, with a cap; its program says whether it is served."""

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lab.hosts.guest.commands import CommandFailed, run, until
from lab.hosts.guest.setup import IMAGE

CAP_MIB = 512
# What it is shown of the card, whether more than its cap is refused (2: out of memory), then one call a time.
PROGRAM = f"""
import ctypes, signal, sys, time
# The first process of a container has no default for signals.
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
at, room = ctypes.c_uint64(), (ctypes.c_size_t * 2)()
assert not cuda.cuInit(0) and not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
assert not cuda.cuCtxSetCurrent(context) and not cuda.cuMemGetInfo_v2(room, ctypes.byref(room, 8))
def get(mib):
    return cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(mib << 20))
print("sees", room[1] >> 20, "beyond", get({CAP_MIB}), "within", get(64), flush=True)
number = 0
while True:
    number += 1
    print("call", number, get(1), cuda.cuMemFree_v2(at), flush=True)
    time.sleep(0.2)
"""
FIRST = f"sees {CAP_MIB} beyond 2 within 0"


def root() -> str:
    """The node's own files as a mount of their own: runc leaves no other root."""
    place = Path("/node")
    if not place.is_mount():
        place.mkdir(exist_ok=True)
        run("mount", "--bind", "/", str(place))
    return str(place)


class Way(ABC):
    name: str

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def said(self) -> list[str]: ...

    @abstractmethod
    def remove(self) -> None: ...


class ByDocker(Way):
    name = "by-docker"

    def start(self) -> None:
        words = ("--name", self.name, "--network=none", "--runtime=mgpu", "--restart=unless-stopped")
        run(
            "docker",
            "run",
            "--detach",
            *words,
            "-e",
            f"MGPU_MEMORY_MIB={CAP_MIB}",
            "--volume=/usr:/usr",
            IMAGE,
            "python3",
            "-c",
            PROGRAM,
        )

    def said(self) -> list[str]:
        return run("docker", "logs", self.name).splitlines()

    def remove(self) -> None:
        run("docker", "rm", "--force", self.name)

    def state(self) -> str:
        return run("docker", "inspect", "--format", "{{.State.Status}} {{.State.Error}}", self.name).strip()

    def pid(self) -> int:
        return int(run("docker", "inspect", "--format", "{{.State.Pid}}", self.name))


class ByContainerd(Way):
    name = "by-containerd"

    def start(self) -> None:
        self._log().unlink(missing_ok=True)
        asked = f"mgpu.dev/memory-mib={CAP_MIB}"
        words = (
            "--runtime",
            "io.containerd.mgpu.v2",
            "--annotation",
            asked,
            "--log-uri",
            f"file://{self._log()}",
        )
        run(
            "ctr",
            "run",
            "--detach",
            *words,
            "--rootfs",
            root(),
            self.name,
            "/usr/bin/python3",
            "-c",
            PROGRAM,
        )

    def _log(self) -> Path:
        return Path("/run") / self.name

    def said(self) -> list[str]:
        return self._log().read_text().splitlines()

    def remove(self) -> None:
        with suppress(CommandFailed):
            run("ctr", "tasks", "kill", "--signal", "KILL", self.name)
        until(self._gone, f"{self.name} is removed")

    def _gone(self) -> bool:
        with suppress(CommandFailed):
            run("ctr", "tasks", "delete", self.name)
        with suppress(CommandFailed):
            run("ctr", "containers", "delete", self.name)
        return self.name not in run("ctr", "containers", "list", "--quiet")


class ByRunc(Way):
    """`mgpu run`, with the node's own files as the container's."""

    name = "by-runc"

    def start(self) -> None:
        with self._log().open("wb") as log:
            asked = ("--memory-mib", str(CAP_MIB), "--gpus", "1")
            self._process = subprocess.Popen(
                ["mgpu", "run", *asked, root(), "python3", "-c", PROGRAM],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _log(self) -> Path:
        return Path("/run") / self.name

    def said(self) -> list[str]:
        return self._log().read_text().splitlines()

    def remove(self) -> None:
        self._process.terminate()
        self._process.wait(60)


@contextmanager
def running(*ways: Way) -> Iterator[None]:
    """Once each has seen its cap."""
    for way in ways:
        way.start()
    for way in ways:
        capped(way)
    yield
    for way in ways:
        way.remove()


def capped(way: Way) -> None:
    until(way.said, f"{way.name} says something")
    first = way.said()[0]
    assert first == FIRST, f"{way.name}: {way.said()[-1]}"


def served(*ways: Way) -> None:
    """Each gets an answer, and a good one, to a call that it makes from now on."""
    for way in ways:
        _answered(way, len(way.said()))
        last = way.said()[-1].split()
        assert [last[0], *last[2:]] == ["call", "0", "0"], f"{way.name}: {' '.join(last)}"


def _answered(way: Way, lines: int) -> None:
    # The next line may be of a call that was answered already.
    until(lambda: len(way.said()) > lines + 1, f"{way.name} is served")
