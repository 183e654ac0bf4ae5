"""Makes the folder that tests/gpu/bringup.sh needs on a bare machine: `python -m tests.gpu.kit FOLDER`.

The machine may have any libc and any Python (tools/portable).
"""

import json
import os
import secrets
import shutil
import sys
from pathlib import Path

from tests.gpu import served
from tests.support import rm_interface, rm_numbers
from tests.support.places import PREFIX, REPOSITORY
from tools.portable import tree as portable
from tools.portable.tree import PortableError

PLACE = Path("/opt/mgpu-gpu-kit")
MAX_BYTES = 60 << 20

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
PROGRAMS = ("mgpu-checkpoint", "mgpu-holder", "mgpu-hook", "mgpu-load", "mgpu-runtime", "mgpu-simcard")
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
    *sorted((REPOSITORY / "tests" / "gpu" / "programs").glob("*.c")),
)
FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-s")
RECORDER = REPOSITORY / "tests" / "gpu" / "record.c"
ABI = REPOSITORY / "tools" / "abi"


def python(kit: Path) -> None:
    site = portable.python(kit, DISTRIBUTIONS)
    installed = PREFIX / "lib" / portable.VERSION / "site-packages"
    for package in PACKAGES:
        shutil.copytree(
            installed / package, site / package, ignore=shutil.ignore_patterns("__pycache__", "generated")
        )


def build(kit: Path) -> None:
    for name in PROGRAMS:
        portable.copy(PREFIX / "libexec" / "mgpu" / name, kit / "libexec" / "mgpu" / name)
    shutil.copytree(PREFIX / "lib" / "mgpu", kit / "lib" / "mgpu")
    for name in RUNTIMES:
        if path := shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin"):
            portable.copy(Path(path), kit / "bin" / name)
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
    for name in ("__init__.py", "places.py", "tsv.py", "rm_interface.py", "rm_numbers.py", "chips.py"):
        if (source := REPOSITORY / "tests" / "support" / name).exists():
            portable.copy(source, tests / "support" / name)
    for source in (
        *(ABI / f"{name}.py" for name in ("interface", "problem", "release", "tables")),
        rm_interface.SOURCE,
        *(rm_numbers.FACTS / f"{kind}.tsv" for kind in (*rm_numbers.NUMBER_AT, "chips", "field", "userd")),
    ):
        portable.copy(source, kit / source.relative_to(REPOSITORY))


def programs(kit: Path) -> None:
    (kit / "programs").mkdir()
    recorder(kit / "programs" / "record.so")
    for source in SOURCES:
        static = ["-static", "-no-pie"] if source.stem in STATIC else []
        portable.run("gcc", *FLAGS, *static, "-o", kit / "programs" / source.stem, source, "-lpthread")


def recorder(library: Path) -> None:
    """What programs of the machine's are started with, to write down what they ask of its driver."""
    loadable(RECORDER, library)


def loadable(source: Path, library: Path) -> None:
    portable.run("gcc", *FLAGS, "-shared", "-fPIC", "-o", library, source, "-lpthread")


def bind(kit: Path) -> None:
    of_others = (kit / "lib" / "mgpu" / "sim", kit / "programs" / "record.so")
    portable.bind(
        kit, PLACE, own=PREFIX, foreign=lambda path: any(path.is_relative_to(one) for one in of_others)
    )


def make(kit: Path) -> int:
    """The kit's size in bytes."""
    shutil.rmtree(kit, ignore_errors=True)
    kit.mkdir(parents=True)
    for step in (python, build, programs, bind):
        step(kit)
    # Another kit, another name: what lies at its place already is told by it.
    (kit / "VERSION").write_text(secrets.token_hex(16) + "\n")
    taken = portable.size_bytes(kit)
    if taken > MAX_BYTES:
        raise PortableError(f"{kit} has {taken >> 20} MiB, and {MAX_BYTES >> 20} are allowed")
    return taken


if __name__ == "__main__":
    try:
        print(f"kit: {make(Path(sys.argv[1]).absolute()) / 2**20:.1f} MiB in {sys.argv[1]}")
    except PortableError as error:
        sys.exit(f"kit: {error}")
