"""Files of nvidia-uvm: which nodes can be polled, how many files are counted, and what tells an initialised
one.
"""

import errno
import fcntl
import os
import select
import struct
from collections.abc import Callable
from pathlib import Path

from tests.gpu.backend import Backend
from tests.gpu.results import Result, Results
from tests.gpu.stage import CannotSayError
from tests.support.rm_numbers import UVM_INITIALIZE, UVM_UNMAP_EXTERNAL

INITIALIZE, UNMAP_EXTERNAL = UVM_INITIALIZE, UVM_UNMAP_EXTERNAL
NODE = "/dev/nvidia-uvm"
COUNT = Path("/sys/module/nvidia_uvm/refcnt")
# base, length, the GPU, the status: a length of 0 is no range, which is asked before anything else is.
UNMAP_STRUCT, UNMAP_STATUS_AT = struct.Struct("<QQ16sII"), 32
# flags, the status.
INITIALIZE_STRUCT, INITIALIZE_STATUS_AT = struct.Struct("<QI4x"), 8
Ioctl = Callable[[int, int, bytearray], object]


def files(backend: Backend, results: Results, out: Result) -> None:
    if backend.name == "sim":
        raise CannotSayError("a simulated card's files are no device nodes")
    out.figures["polled"] = {
        node: polled(Path("/dev") / node) for node in ("nvidiactl", "nvidia0", "nvidia-uvm")
    }
    # A kernel without CONFIG_MODULE_UNLOAD does not count.
    if COUNT.exists():
        out.figures["counted"] = counted(lambda: os.open(NODE, os.O_RDWR | os.O_CLOEXEC), COUNT)
    uvm = os.open(NODE, os.O_RDWR | os.O_CLOEXEC)
    try:
        out.figures["unmap"] = unmapped(uvm, fcntl.ioctl)
    finally:
        os.close(uvm)
    out.verdict = judged(out.figures["polled"], out.figures.get("counted"), out.figures["unmap"])


def judged(polls: dict[str, bool], counts: dict[str, int] | None, unmap: dict[str, str]) -> str:
    wrong = []
    if polls != {"nvidiactl": True, "nvidia0": True, "nvidia-uvm": False}:
        wrong.append("polling")
    if counts and [counts[name] for name in ("open", "dup", "closed one", "closed both")] != [2, 2, 2, 0]:
        wrong.append("counting")
    if unmap["before"] == unmap["after"]:
        wrong.append("initialised")
    return f"not as assumed: {', '.join(wrong)}" if wrong else "as assumed"


def polled(node: Path) -> bool:
    """Whether epoll takes a file of it; OSError for another reason than that it cannot be polled."""
    fd = os.open(node, os.O_RDWR | os.O_CLOEXEC)
    try:
        with select.epoll() as epoll:
            epoll.register(fd, select.EPOLLET)
        return True
    except PermissionError:
        return False
    finally:
        os.close(fd)


def counted(opened: Callable[[], int], count: Path) -> dict[str, int]:
    """What the module's count is above what it was, after an open, a dup, and a close of each."""
    before = int(count.read_text())
    more = {}

    def note(name: str) -> None:
        more[name] = int(count.read_text()) - before

    first = opened()
    note("open")
    second = os.dup(first)
    note("dup")
    os.close(first)
    note("closed one")
    os.close(second)
    note("closed both")
    return more


def unmapped(uvm: int, ioctl: Ioctl) -> dict[str, str]:
    """What UNMAP_EXTERNAL of nothing says on a new file and on an initialised one; and a second
    INITIALIZE."""
    said = {"before": _status(uvm, ioctl, UNMAP_EXTERNAL, bytearray(UNMAP_STRUCT.size), UNMAP_STATUS_AT)}
    for name in ("initialize", "again"):
        params = bytearray(INITIALIZE_STRUCT.size)
        said[name] = _status(uvm, ioctl, INITIALIZE, params, INITIALIZE_STATUS_AT)
    said["after"] = _status(uvm, ioctl, UNMAP_EXTERNAL, bytearray(UNMAP_STRUCT.size), UNMAP_STATUS_AT)
    outside = bytearray(UNMAP_STRUCT.pack(1 << 40, 1 << 21, bytes(16), 0, 0))
    said["outside a range, of no GPU"] = _status(uvm, ioctl, UNMAP_EXTERNAL, outside, UNMAP_STATUS_AT)
    return said


def _status(uvm: int, ioctl: Ioctl, command: int, params: bytearray, at: int) -> str:
    try:
        ioctl(uvm, command, params)
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return hex(struct.unpack_from("<I", params, at)[0])
