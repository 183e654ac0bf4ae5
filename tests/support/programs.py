"""The C programs of tests/programs, built once per run, for containers of the test image to run."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import host
from tests.support.bundle import Bundle, bundle
from tests.support.places import REPOSITORY

SOURCES = REPOSITORY / "tests" / "programs"
NAMES = (
    "again",
    "capped",
    "churn",
    "cuda_start",
    "hold",
    "in_turn",
    "ipc",
    "keeper",
    "mortal",
    "replay",
    "steady",
    "taker",
    "two_cards",
    "uvm_keeps",
)
STATIC_SOURCES = {
    "card_direct": REPOSITORY / "tests" / "bench" / "card_direct.c",
    "notify_floor": REPOSITORY / "tests" / "bench" / "notify_floor.c",
    "timer_floor": REPOSITORY / "tests" / "bench" / "timer_floor.c",
    "rm_latency": REPOSITORY / "tests" / "bench" / "rm_latency.c",
    "alarm": SOURCES / "alarm.c",
    "brief": SOURCES / "brief.c",
    "alloc_storm": SOURCES / "alloc_storm.c",
    "copier": SOURCES / "copier.c",
    "changing": SOURCES / "changing.c",
    "reclass": SOURCES / "reclass.c",
    "many_objects": SOURCES / "many_objects.c",
    "many_files": SOURCES / "many_files.c",
    "steadfast": SOURCES / "steadfast.c",
    "engines": SOURCES / "engines.c",
    "mappings": SOURCES / "mappings.c",
    "memory_paths": SOURCES / "memory_paths.c",
    "own_ioctls": SOURCES / "own_ioctls.c",
    "resume": SOURCES / "resume.c",
    "storm": SOURCES / "storm.c",
}
# Preloaded, it makes a program's calls of the driver the simulated card's own.
UNMEDIATED = "unmediated.so"
# Preloaded, it moves a program's wall clock.
MOVED_CLOCK = "moved_clock.so"
ABOUT_TO_EXEC = "about_to_exec.so"
# One for each attempt to get past the boundary: they need nothing but a kernel.
HOSTILE = {path.stem: path for path in sorted((SOURCES / "hostile").glob("*.c"))}
INSIDE = "/programs"
KEPT = REPOSITORY / "build" / "test-programs"


@dataclass(frozen=True)
class Programs:
    """Where they are on the host; containers get the folder as INSIDE."""

    folder: Path

    @property
    def ctr_mount(self) -> tuple[str, str]:
        return "--mount", f"type=bind,src={self.folder},dst={INSIDE},options=rbind:ro"

    @property
    def docker_mount(self) -> tuple[str, str]:
        return "--volume", f"{self.folder}:{INSIDE}:ro"

    @property
    def oci_mount(self) -> dict[str, object]:
        return {
            "destination": INSIDE,
            "type": "bind",
            "source": str(self.folder),
            "options": ["rbind", "ro"],
        }

    def bundle(self, name: str, *args: str, **options: Any) -> AbstractContextManager[Bundle]:
        """Of one of them; options as bundle()'s."""
        return bundle(inside(name), *args, mounts=[self.oci_mount], **options)


def inside(name: str) -> str:
    """A program's path in a container that has the mount."""
    return f"{INSIDE}/{name}"


def _digest() -> str:
    """Of all that the programs are made from."""
    found = hashlib.sha256()
    folders = (
        SOURCES,
        REPOSITORY / "tests" / "bench",
        REPOSITORY / "native_sched/nvidia/rm",
        REPOSITORY / "sim",
    )
    for path in sorted(path for folder in folders for path in folder.rglob("*.[ch]")):
        found.update(os.fsencode(path) + b"\0" + path.read_bytes())
    return found.hexdigest()[:16]


def _compile(folder: Path) -> None:
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"]
    commands = [
        ["gcc", *flags, "-o", folder / name, SOURCES / f"{name}.c", "-lpthread", "-ldl"] for name in NAMES
    ]
    preloaded = {UNMEDIATED: REPOSITORY / "tests" / "bench", MOVED_CLOCK: SOURCES, ABOUT_TO_EXEC: SOURCES}
    commands += [
        ["gcc", *flags, "-shared", "-fPIC", "-o", folder / name, (of / name).with_suffix(".c"), "-ldl"]
        for name, of in preloaded.items()
    ]
    commands += [
        ["gcc", *flags, "-static", "-no-pie", "-o", folder / name, source, "-lpthread"]
        for name, source in {**STATIC_SOURCES, **HOSTILE}.items()
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for done in pool.map(lambda command: subprocess.run(command, check=False), commands):
            done.check_returncode()


@contextmanager
def built() -> Iterator[Programs]:
    """They are compiled once for all runs, those with sanitizers too: none of it is ours but the tests'."""
    kept = KEPT / _digest()
    if not kept.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=KEPT))
        _compile(made)
        try:
            made.rename(kept)
        except OSError:
            # Another run was first.
            shutil.rmtree(made)
    with host.home("prg") as folder:
        shutil.copytree(kept, folder, dirs_exist_ok=True)
        yield Programs(folder)
