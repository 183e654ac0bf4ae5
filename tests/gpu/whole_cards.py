"""What a container with whole cards has beside a share: counters, a debugger, a sanitizer, MPS, exports."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.gpu import calls
from tests.gpu.backend import python_with
from tests.gpu.container_programs import FOLDER, NOWHERE
from tests.gpu.product import Product
from tests.gpu.results import Result, Results
from tests.gpu.stage import CannotSayError

BUILD_S, LIMIT_S = 40, 15
# /run, where it was built, may be one from which nothing is executed.
COPIED = 'cp -r "$1/." /tmp; shift; export HOME=/tmp; exec "$@"'
PLACES = (
    "/usr/local/cuda/bin",
    "/usr/local/cuda*/bin",
    "/usr/local/cuda*/compute-sanitizer",
    "/opt/nvidia/nsight-compute/*",
)
# By their options of nvcc: one for the profiler, one with symbols for the debugger.
SAXPY = {"saxpy": ["-lineinfo"], "saxpy_debug": ["-g", "-G"]}
GDB = ("set pagination off", "set confirm off", "set breakpoint pending on", "break saxpy", "run",
       "info cuda kernels", "delete", "continue")  # fmt: skip
# Of each tool, what it is given, and what it says where it works.
TOOLS = {
    "ncu": (["--clock-control", "none", "--metrics", "sm__cycles_elapsed.avg", "saxpy"],
            r"sm__cycles_elapsed\.avg +\w* +[0-9]"),
    "cuda-gdb": (["-batch", "-nx", *(word for one in GDB for word in ("-ex", one)), "saxpy_debug"],
                 r"CUDA thread hit|Switching focus to CUDA kernel"),
    "compute-sanitizer": (["--tool", "memcheck", "saxpy"], r"ERROR SUMMARY: 0 errors"),
}  # fmt: skip
# The daemon's server does its client's work on the card.
MPS = """
export CUDA_MPS_PIPE_DIRECTORY=/tmp/pipe CUDA_MPS_LOG_DIRECTORY=/tmp/log
mkdir /tmp/pipe /tmp/log
nvidia-cuda-mps-control -d
"$@"
echo quit | timeout 3 nvidia-cuda-mps-control
tail -n 6 /tmp/log/*.log
"""
MPS_WORKS = r'"program": "mps_client", "ok": true'
EXPORTED = r'"program": "dmabuf", "ok": true'


def tools(product: Product, results: Results, out: Result) -> None:
    """Each in a container of its own, with a tiny program: ok, or what it said last."""
    if product.driver == "sim":
        raise CannotSayError("they compute, and a simulated card does not")
    folder = Path(tempfile.mkdtemp(dir=product.folder))
    path = os.pathsep.join([os.environ["PATH"], *(str(one) for place in PLACES for one in _globbed(place))])
    lacks = _built(folder, path)
    for name, (argv, works) in TOOLS.items():
        found = shutil.which(name, path=path)
        if lacks or not found:
            out.figures[name] = f"{NOWHERE}{lacks or 'it is not there'}"
            continue
        given = [f"/tmp/{word}" if word in SAXPY else word for word in argv]
        out.figures[name] = _did(
            product, ["sh", "-c", COPIED, "sh", str(folder), found, *given], works, results
        )
    python = python_with("ctypes") or sys.executable
    if shutil.which("nvidia-cuda-mps-control", path=path):
        client = [python, str(FOLDER / "mps_client.py")]
        out.figures["MPS"] = _did(product, ["sh", "-c", MPS, "sh", *client], MPS_WORKS, results)
    else:
        out.figures["MPS"] = f"{NOWHERE}nvidia-cuda-mps-control is not there"
    exports = [python, str(FOLDER / "dmabuf.py")]
    out.figures["dmabuf"] = _did(product, exports, EXPORTED, results)
    wrong = [name for name, said in out.figures.items() if said != "ok" and not said.startswith(NOWHERE)]
    out.verdict = f"to be looked at: {', '.join(wrong)}" if wrong else "all right"


def _globbed(place: str) -> list[Path]:
    return sorted(Path("/").glob(place[1:]))


def _built(folder: Path, path: str) -> str:
    """Both of them at once; empty, or why there are none."""
    nvcc = shutil.which("nvcc", path=path)
    if not nvcc:
        return "no nvcc"
    made = [
        subprocess.Popen(
            [nvcc, "-arch=native", *options, "-o", folder / name, FOLDER / "saxpy.cu"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name, options in SAXPY.items()
    ]
    said = [one.communicate(timeout=BUILD_S)[0] for one in made]
    return "" if not any(one.returncode for one in made) else f"nvcc: {said[0][-200:]}{said[1][-200:]}"


def _did(product: Product, argv: Sequence[str], works: str, results: Results) -> str:
    argv = ["timeout", "-k", "1", str(LIMIT_S), *argv]
    with product.container(argv, memory_mib=None) as box:
        ran = box.end(LIMIT_S + 3)
    results.log(f"{argv} with whole cards (status {ran.status}) said:\n{ran.out}")
    if re.search(works, ran.out):
        return "ok"
    with product.container(calls.told(argv), memory_mib=None) as box:
        results.log(f"its calls: {box.end(2 * LIMIT_S).document()}")
    return f"status {ran.status}: {ran.out.strip()[-400:]}"
