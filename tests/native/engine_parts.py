"""The engine's sources as libraries of their own, with what a test puts beside them or in the place of
one."""

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support import covered
from tests.support.sources import engine_sources

REPOSITORY = Path(__file__).resolve().parents[2]
NATIVE = REPOSITORY / "native_sched"
FLAGS = (
    "-std=gnu11",
    "-g",
    "-O1",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fPIC",
    "-pthread",
    "-DMGPU_CHECK_LOCKS",
    f"-I{REPOSITORY}",
)


def _flags() -> list[str]:
    """With sanitizers where this Python runs with them."""
    preloaded = "libasan" in os.environ.get("LD_PRELOAD", "")
    return [*FLAGS, *covered.FLAGS, *(["-fsanitize=address,undefined"] if preloaded else [])]


@functools.cache
def folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="mgpu-engine-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _compile(sources: list[Path], flags: Sequence[str]) -> list[Path]:
    """Each once in a run."""
    objects = [
        folder() / f"{'-'.join([*path.relative_to(REPOSITORY).with_suffix('').parts, *flags])}.o"
        for path in sources
    ]
    missing = [pair for pair in zip(sources, objects, strict=True) if not pair[1].exists()]
    commands = [["gcc", *_flags(), *flags, "-c", "-o", made, source] for source, made in missing]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for done in pool.map(lambda command: subprocess.run(command, check=False), commands):
            done.check_returncode()
    return objects


def library(
    name: str, *beside: Path, without: str = "", wrapped: Sequence[str] = (), flags: Sequence[str] = ()
) -> str:
    """The whole engine, all of whose functions are there to be called. without: a source, by its name.
    wrapped: functions that one beside stands before. flags: more of the compiler's."""
    engine = [path for path in engine_sources() if path.name != without]
    out = folder() / name
    linked = [*_flags(), "-shared", *(f"-Wl,--wrap={function}" for function in wrapped)]
    subprocess.run(["gcc", *linked, "-o", out, *_compile([*engine, *beside], flags)], check=True)
    covered.LIBRARIES.add(out)
    return str(out)
