"""The engine's pure C parts as a library of their own, built with sanitizers off: ctypes loads it."""

import ctypes
import subprocess
from pathlib import Path

import pytest

from tests.engine import scheduling

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCES = (
    "core/ledger.c",
    "boundary/objects.c",
    "boundary/files.c",
    "boundary/page_tables.c",
    "driver/nvidia_tables.c",
    "journal/store.c",
    "holder/json_end.c",
)


@pytest.fixture(scope="session")
def core(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = tmp_path_factory.mktemp("core") / "libcore.so"
    sources = [str(REPOSITORY / "native_sched" / source) for source in SOURCES]
    subprocess.run(
        [
            "gcc",
            "-std=gnu11",
            "-g",
            "-O1",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-fPIC",
            "-shared",
            "-o",
            str(library),
        ]
        + sources,
        check=True,
    )
    return ctypes.CDLL(str(library))


@pytest.fixture(scope="session")
def sched(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The scheduler and its simulator: see scheduling.py."""
    library = tmp_path_factory.mktemp("sched") / "libsched.so"
    subprocess.run(
        ["gcc", *scheduling.C_FLAGS, "-O2", "-fPIC", "-shared", "-o", library, *scheduling.SOURCES],
        check=True,
    )
    return scheduling.declare(ctypes.CDLL(str(library)))
