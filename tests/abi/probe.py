"""C of the project's own, compiled for a test that compares it with NVIDIA's facts."""

import ctypes
import subprocess
from pathlib import Path

from tools.abi.tables import REPOSITORY

TABLE = REPOSITORY / "native_sched/nvidia/rm" / "table.c"
FLAGS = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", f"-I{REPOSITORY}"]


def compiled(source: str, folder: Path) -> ctypes.CDLL:
    """The shared library of `source`, which includes headers by their path from the repository's root."""
    (folder / "probe.c").write_text(source)
    subprocess.run(["gcc", *FLAGS, "-o", folder / "probe.so", folder / "probe.c", TABLE], check=True)
    return ctypes.CDLL(str(folder / "probe.so"))
