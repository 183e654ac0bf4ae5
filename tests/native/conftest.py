"""The engine's C parts as libraries that ctypes loads, and cards whose registers they read."""

import ctypes
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.native import engine_parts, scheduling
from tests.native.fake_rm import MigRm
from tests.native.nvidia_mediated import World, world
from tests.native.status_registers import BAR_BYTES, BUSY, COPY0, COPY1, GRAPHICS, write_word


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


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


@pytest.fixture
def bar(tmp_path: Path) -> Path:
    path = tmp_path / "pci" / "0000:65:00.0" / "resource0"
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(BAR_BYTES))
    return path


@pytest.fixture
def mig(bar: Path, tmp_path: Path) -> MigRm:
    """Two GPU instances; the first has two compute instances, which share a copy engine."""
    caps = tmp_path / "dev" / "nvidia-caps"
    caps.mkdir(parents=True)
    lines = []
    for gpu, compute in ((3, 0), (3, 1), (5, 0)):
        lines += [f"gpu0/gi{gpu}/access {gpu}", f"gpu0/gi{gpu}/ci{compute}/access {10 * gpu + compute}"]
        for minor in (gpu, 10 * gpu + compute):
            (caps / f"nvidia-cap{minor}").touch()
    (tmp_path / "dev" / "mig-minors").write_text("\n".join(["config 1", *lines]) + "\n")
    instances = {
        (3, 0): {GRAPHICS: 0x1000, COPY0: 0x2000},
        (3, 1): {GRAPHICS: 0x3000, COPY0: 0x2000},
        (5, 0): {GRAPHICS: 0x4000, COPY0: 0x5000, COPY1: 0x6000},
    }
    for base in (0x1000, 0x2000, 0x3000, 0x4000, 0x5000, 0x6000):
        write_word(bar, base + 0x200, BUSY | base >> 12)
    return MigRm(cards=1, instances=instances, caps=str(caps))
