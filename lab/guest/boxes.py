"""Containers of mgpu's on the guest's card, by runc; their root is the guest's own."""

import json
import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.guest import served
from tests.gpu.product import Container, Product

# tinygrad's own variables: no library of NVIDIA's compiles, and patterns are not made into Python.
_TINYGRAD = ("PYTHONPATH=/lab:/project/foreign-550", "PTX=1", "UPAT_COMPILE=0", "CACHEDB=/tmp/tinygrad.db")


def product() -> Product:
    served.start()
    folder = Path("/run/lab")
    folder.mkdir(exist_ok=True)
    made = Product("nvidia", folder, runtime="/usr/sbin/runc")
    made.state = served.state()
    return made


def inside(*words: str) -> Sequence[str]:
    return ["env", "PYTHONPATH=/lab", "python3", "-m", "lab.guest.inside", *words]


def tinygrad(*words: str) -> Sequence[str]:
    return ["env", *_TINYGRAD, "python3", "-m", "lab.guest.by_tinygrad", *words]


def told(box: Container) -> dict[str, Any]:
    """Its next line, a JSON object; AssertionError with all that it said where that is something else."""
    line = box.line()
    try:
        said: dict[str, Any] = json.loads(line)
    except ValueError:
        raise AssertionError(line + box.end().out) from None
    return said


def tell(box: Container, line: str = "") -> None:
    """It goes on by that."""
    assert box.process.stdin is not None
    box.process.stdin.write(f"{line}\n")
    box.process.stdin.flush()


def listed(box: Container) -> dict[str, Any]:
    """mgpud's account of it."""
    found = [each for each in served.ask("list")["containers"] if each["container_id"] == box.name]
    assert len(found) == 1, found
    return dict(found[0])


def used_bytes(box: Container) -> int:
    return int(listed(box)["cards"][0]["used_bytes"])


def pids(box: Container) -> list[int]:
    """Of its processes that have memory of the card."""
    return [int(each["pid"]) for each in listed(box)["processes"]]


def process(inside: int) -> int:
    """The one that has this number in its container, as the guest numbers it."""
    numbers = re.compile(rf"^NSpid:.*\t{inside}$", re.M)
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal() or b"lab.guest.inside" not in (folder / "cmdline").read_bytes():
            continue
        if numbers.search((folder / "status").read_text()):
            return int(folder.name)
    raise AssertionError(f"no process is {inside} in a container")


def mgpuds() -> list[int]:
    """The one that serves, and the one that stands by."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and b"/mgpud\0--root" in (folder / "cmdline").read_bytes():
            found.append(int(folder.name))
    return found


def serving() -> int:
    """The mgpud that took over last, by its log."""
    return int(re.findall(r" event=serving .* pid=(\d+)", served.LOG.read_text())[-1])


def kill(box: Container) -> None:
    """As the kernel kills for want of memory: its processes, not what waits for them."""
    for pid in pids(box):
        os.kill(pid, signal.SIGKILL)
