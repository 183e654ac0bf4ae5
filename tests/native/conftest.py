"""The engine's C parts as libraries that ctypes loads."""

import ctypes
import subprocess

import pytest

from tests.native import engine_parts, scheduling


@pytest.fixture(scope="session")
def core() -> ctypes.CDLL:
    return ctypes.CDLL(engine_parts.library("libcore.so", engine_parts.NATIVE / "holder" / "json_end.c"))


@pytest.fixture(scope="session")
def sched(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The scheduler and its simulator: see scheduling.py."""
    library = tmp_path_factory.mktemp("sched") / "libsched.so"
    subprocess.run(
        ["gcc", *scheduling.C_FLAGS, "-O2", "-fPIC", "-shared", "-o", library, *scheduling.SOURCES],
        check=True,
    )
    return scheduling.declare(ctypes.CDLL(str(library)))
