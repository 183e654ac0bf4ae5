"""Programs that use a card as frameworks do (tests/gpu/programs), each in a container of its own."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.gpu import calls
from tests.gpu.backend import PROGRAMS, python_with
from tests.gpu.product import Product
from tests.gpu.results import Result, Results
from tests.gpu.stage import CannotSayError

FOLDER = Path(__file__).with_name("programs")
CAP_MIB = 20_000
# A program ends itself and says where it hung; all of them have to be done before the stage's own limit.
LIMIT_S, ALL_S, LEAST_S, GRACE_S = 25, 105, 2, 3
# By the module that the machine's Python has to have.
NEEDS = {
    "torch_work": "torch",
    "torch_profile": "torch",
    "nccl_one": "torch",
    "dmabuf": "ctypes",
    "cupy_work": "cupy",
    "triton_work": "triton",
    "jax_work": "jax",
}
# Of a share with these capabilities, whose library a machine with a driver may lack.
VIDEO, GRAPHICS = "compute,utility,video", "compute,utility,graphics"
CAPABLE = {
    **dict.fromkeys(("decode", "encode", "ofa", "nvjpeg.py"), VIDEO),
    **dict.fromkeys(("egl.py", "vulkan.py"), GRAPHICS),
}
NOWHERE = "cannot be said here: "


def programs(product: Product, results: Results, out: Result) -> None:
    """Each in a share with the machine's Python, video and graphics too, and a decoder with whole cards."""
    if product.driver == "sim":
        raise CannotSayError("they compute, and a simulated card does not")
    end = time.monotonic() + ALL_S
    pythons = {module: python_with(module) for module in sorted(set(NEEDS.values()))}
    for name, module in NEEDS.items():
        if python := pythons[module]:
            argv = [python, str(FOLDER / f"{name}.py")]
            out.figures[name] = _ran(product, argv, CAP_MIB, end, results)
        else:
            out.figures[name] = f"{NOWHERE}no Python here has {module}"
    for name, capabilities in CAPABLE.items():
        script = [pythons["ctypes"] or sys.executable, str(FOLDER / name)]
        argv = script if name.endswith(".py") else [str(PROGRAMS / name)]
        out.figures[name] = _lacks_nothing(_ran(product, argv, CAP_MIB, end, results, capabilities))
    whole = _ran(product, [str(PROGRAMS / "decode")], None, end, results)
    out.figures["decode, whole"] = _lacks_nothing(whole)
    wrong = [
        name
        for name, found in out.figures.items()
        if isinstance(found, dict) and found.get("ok") is not True
    ]
    out.verdict = f"to be looked at: {', '.join(wrong)}" if wrong else "all right"


def _lacks_nothing(report: dict[str, Any]) -> dict[str, Any] | str:
    error = str(report.get("error"))
    return (
        f"{NOWHERE}{error}"
        if any(word in error for word in ("dlopen", "no libnvjpeg", "libEGL.so.1: cannot open"))
        else report
    )


def _ran(
    product: Product,
    argv: Sequence[str],
    memory_mib: int | None,
    end: float,
    results: Results,
    capabilities: str = "",
) -> dict[str, Any]:
    """Its report; without one, or where it did not end well, what it said last."""
    limit_s = max(LEAST_S, min(LIMIT_S, int(end - time.monotonic())))
    # Kernels that CuPy compiles are kept in a home that is the machine's.
    argv = ["env", f"PROGRAM_LIMIT={limit_s}", "CUPY_CACHE_DIR=/tmp/cupy", *argv]
    with product.container(argv, memory_mib=memory_mib, capabilities=capabilities) as box:
        ran = box.end(limit_s + GRACE_S)
    results.log(f"{argv[-1]} (status {ran.status}) said:\n{ran.out}")
    report = ran.document()
    if not report or (ran.status and report.get("ok")):
        report = {"ok": False, "status": ran.status, "said": ran.out[-300:]}
    if not report.get("ok"):
        with product.container(calls.told(argv), memory_mib=memory_mib, capabilities=capabilities) as box:
            report["calls"] = box.end(limit_s + GRACE_S).document()
    return report
