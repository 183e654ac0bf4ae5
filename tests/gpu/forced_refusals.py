"""NVIDIA's own libraries without mgpu, but with everything refused that mgpu refuses: what they cannot do
without.
"""

import os
import sys
from collections.abc import Callable

from tests.gpu import rm, served
from tests.gpu.backend import Backend
from tests.gpu.first import said, steps
from tests.gpu.results import Result, Results
from tests.gpu.supervise import How, Supervised

WORDS = ("init", "context", "alloc=16", "copy=16", "event", "free", "info", "destroy")
# So many single refusals are tried of a program that does not start with all of them.
TRIED = 30
NVML = """
import pynvml
pynvml.nvmlInit()
h = pynvml.nvmlDeviceGetHandleByIndex(0)
pynvml.nvmlDeviceGetMemoryInfo(h), pynvml.nvmlDeviceGetComputeRunningProcesses(h), pynvml.nvmlDeviceGetName(h)
"""
Refuses = Callable[[str, int], bool]
Works = Callable[[Refuses], tuple[bool, list[str]]]


def nothing(kind: str, number: int) -> bool:
    return False


def no_device(kind: str, number: int) -> bool:
    """Without which no program does anything: whether refusals arrive at all."""
    return kind == "class" and number == rm.DEVICE


def only(name: str) -> Refuses:
    kind, number = name.rsplit(" ", 1)
    return lambda of, one: (of, one) == (kind, int(number, 0))


def needs(works: Works, refuses: Refuses) -> dict[str, object]:
    """Whether a program works with the refusals; and if not, which of them stops it, each tried by itself."""
    natively, _ = works(nothing)
    held, refused = works(refuses)
    found: dict[str, object] = {"natively": natively, "with_refusals": held, "refused": refused}
    if natively and not held:
        found["stopped_by"] = [name for name in refused[:TRIED] if not works(only(name))[0]] or [
            "several together"
        ]
    return found


def programs(backend: Backend) -> dict[str, list[str]]:
    found = {"cuda": steps(*WORDS), "nvml": [sys.executable, "-c", NVML]}
    return found | ({"nvidia_smi": ["nvidia-smi"]} if backend.name == "nvidia" else {})


def forced(backend: Backend, results: Results, out: Result) -> None:
    refuses = served.refused_by(served.read())
    for name, argv in programs(backend).items():
        works = runner(backend, results, argv)
        if name == "cuda" and works(no_device)[0]:
            out.verdict = "refusals do not arrive"
            return
        out.figures[name] = needs(works, refuses)
    stopped = {
        name: one["stopped_by"]
        for name, one in out.figures.items()
        if isinstance(one, dict) and "stopped_by" in one
    }
    plain = [name for name, one in out.figures.items() if isinstance(one, dict) and not one["natively"]]
    if stopped:
        out.verdict = "; ".join(
            f"{name} needs {', '.join(map(str, what))}" for name, what in stopped.items()
        )
    else:
        out.verdict = (
            f"not even natively: {', '.join(plain)}" if plain else "all start with what mgpu refuses"
        )


def runner(backend: Backend, results: Results, argv: list[str]) -> Works:
    def works(refuses: Refuses) -> tuple[bool, list[str]]:
        env = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        with Supervised(backend, argv, How(refuse=refuses), env=env) as program:
            text = program.output(15)
            refused = sorted(program.census.refused)
            worked = program.process.returncode == 0 and all(not one["code"] for one in said(text))
            results.log(f"{argv[-1][-40:]!r} without {refused}: {worked}\n{text[-600:]}")
            return worked, refused

    return works
