"""Which indices of FB_GET_INFO_V2 make up what programs say of memory."""

import os
import sys
from collections import Counter

from tests.gpu.backend import Backend
from tests.gpu.first import steps
from tests.gpu.results import Result, Results
from tests.gpu.supervise import Supervised

TIMES = 10
INFO = """
import sys, pynvml
pynvml.nvmlInit()
h = pynvml.nvmlDeviceGetHandleByIndex(0)
for _ in range(int(sys.argv[1])):
    pynvml.nvmlDeviceGetMemoryInfo(h%s)
"""
V2 = ", version=pynvml.nvmlMemory_v2"


def asks(times: int) -> dict[str, list[str]]:
    """By name, a program that asks so often."""
    return {
        "cuMemGetInfo": steps("init", "context", *(["info"] * times)),
        "nvmlDeviceGetMemoryInfo": [sys.executable, "-c", INFO % "", str(times)],
        "nvmlDeviceGetMemoryInfo_v2": [sys.executable, "-c", INFO % V2, str(times)],
    }


def indices(backend: Backend, results: Results, out: Result) -> None:
    """What a program reads for each question is what it reads more often when it asks more often."""
    for name, few in asks(1).items():
        seen = [_seen(backend, results, argv) for argv in (few, asks(1 + TIMES)[name])]
        out.figures[name] = each(*seen)
    known = [name for name, found in out.figures.items() if found]
    out.verdict = "indices seen" if "cuMemGetInfo" in known else "not seen"


def _seen(backend: Backend, results: Results, argv: list[str]) -> Counter[str]:
    with Supervised(backend, argv, env={"PYTHONPATH": os.environ.get("PYTHONPATH", "")}) as program:
        results.log(f"{argv[-1]}: {program.output(20).strip()[-300:]}")
        return program.census.seen


def each(once: Counter[str], often: Counter[str]) -> dict[str, float]:
    """How often each index is read for one question; a control that is not asked for memory in general counts
    too.
    """
    more = {what: (often[what] - once[what]) / TIMES for what in often}
    return {
        what: times
        for what, times in sorted(more.items())
        if times >= 1 and what.startswith(("fb", "control"))
    }
