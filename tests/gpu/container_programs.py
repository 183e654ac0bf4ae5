"""Programs that use a card as frameworks do (tests/gpu/programs), each in a container of its own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
NOWHERE = "cannot be said here: "


def programs(product: Product, results: Results, out: Result) -> None:
    """Each with the machine's own Python, and a decoder of video with whole cards."""
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
    decoded = _ran(product, [str(PROGRAMS / "decode")], None, end, results)
    # The only one whose library a machine with a driver may lack.
    lacks = str(decoded.get("error")).startswith("dlopen")
    out.figures["decode"] = f"{NOWHERE}{decoded['error']}" if lacks else decoded
    wrong = [
        name
        for name, found in out.figures.items()
        if isinstance(found, dict) and found.get("ok") is not True
    ]
    out.verdict = f"to be looked at: {', '.join(wrong)}" if wrong else "all right"


def _ran(
    product: Product, argv: Sequence[str], memory_mib: int | None, end: float, results: Results
) -> dict[str, Any]:
    """Its report; without one, or where it did not end well, what it said last."""
    limit_s = max(LEAST_S, min(LIMIT_S, int(end - time.monotonic())))
    with product.container(["env", f"PROGRAM_LIMIT={limit_s}", *argv], memory_mib=memory_mib) as box:
        ran = box.end(limit_s + GRACE_S)
    results.log(f"{argv[-1]} (status {ran.status}) said:\n{ran.out}")
    report = ran.document()
    if report and (ran.status == 0 or not report.get("ok")):
        return report
    return {"ok": False, "status": ran.status, "said": ran.out[-300:]}
