"""A mgpud that has loaded everything, and waits for the holder to call it when the previous one has ended."""

import ctypes
import gc
import importlib
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass

from oci_specs import paths, schemas

# native_sched/holder/standby.h: a byte calls, an end of file says that the holder is gone.
_LINE = 0
_LOADED = (
    "native_sched.daemon.mgpud",
    "native_sched.daemon.serving",
    "native_sched.daemon.metrics.text",
    "oci_specs.seccomp.rewrite",
    "pynvml",
    "tomllib",
)
_WAITING, _SERVING = "mgpud-standby", "mgpud"


@dataclass(frozen=True)
class Called:
    """When a mgpud was called, and what of the processor's time it had taken by then."""

    at_ns: int
    cpu_ns: int


def wait() -> Called | None:
    """Returns when it is to serve; None when it will not be asked to."""
    _be_known_as(_WAITING)
    # A Ctrl-C is the holder's to see.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _load()
    # The holder hears that it has loaded, where it has not called it already.
    with suppress(OSError):
        os.write(_LINE, b"+")
    try:
        word = os.read(_LINE, 1)
    except ConnectionResetError:
        return None
    # The holder is answered by the end of the line.
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(null, _LINE)
    os.close(null)
    _be_known_as(_SERVING)
    return Called(time.monotonic_ns(), time.process_time_ns()) if word else None


def _load() -> None:
    """All that it runs: of what is installed meanwhile it is to be no mixture."""
    for name in _LOADED:
        importlib.import_module(name)
    # A product of its own, which a node with real GPUs lacks.
    with suppress(ModuleNotFoundError):
        importlib.import_module("sim.cdi")
    schemas.validator_class()
    ctypes.CDLL(paths.lib("libmgpu_engine.so"))
    # Nothing loaded so far is garbage, and a search through it later would make containers wait.
    gc.collect()
    gc.freeze()


def _be_known_as(name: str) -> None:
    """To ps, pgrep and top."""
    with open("/proc/self/comm", "w") as comm:
        comm.write(name)
