"""The fuzzers: each a program that takes libFuzzer's options, built or found here."""

import os
import random
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.support import commands

REPOSITORY = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
NATIVE = REPOSITORY / "native_sched"
HOOK = REPOSITORY / "runtime_hook"
FOLDER = REPOSITORY / "build" / "fuzz"
# What the kernel and threads are to the mediator stays out: fake_caller.c stands in for the first of these.
_NOT_OF_THE_MEDIATOR = {"caller.c", "listener.c", "weak_ref.c", "privileges.c", "recover.c"}
# A life of the mediator is made of many small choices; longer inputs are slower and find nothing else.
_MAX_BYTES = 2048
# Of the clock on the wall, for a program that has its processor when no other wants it.
_ONE_INPUT_S = 300
_SEED = 1
# As many as a slow machine tries beside the other tests.
_INPUTS = 8000
_MEMORY_MIB = 1024


@dataclass(frozen=True)
class Target:
    """sources: of a C target; a target without is a property in Python."""

    name: str
    sources: tuple[Path, ...] = ()
    include: Path = REPOSITORY

    @property
    def seeds(self) -> Path:
        """Inputs that once broke something, in hexadecimal: they are tried first."""
        return HERE / "corpus" / self.name


def _glob(folder: Path, without: Iterable[str] = ()) -> tuple[Path, ...]:
    return tuple(path for path in sorted(folder.rglob("*.c")) if path.name not in set(without))


def _here(*names: str) -> tuple[Path, ...]:
    return tuple(HERE / f"{name}.c" for name in names)


TARGETS = (
    Target(
        "mediate",
        (
            *_here("fuzz_mediate", "made", "model", "model_share", "fake_caller", "books"),
            *_glob(NATIVE / "process", _NOT_OF_THE_MEDIATOR),
            *_glob(NATIVE / "nvidia/account"),
            *_glob(NATIVE / "nvidia/boundary", _NOT_OF_THE_MEDIATOR),
            *(NATIVE / "core" / f"{name}.c" for name in ("card_memory", "ledger", "utilization")),
            NATIVE / "journal" / "slab.c",
            NATIVE / "journal" / "store.c",
            *_glob(NATIVE / "nvidia/channels"),
            NATIVE / "nvidia/driver" / "rm_control.c",
            REPOSITORY / "native_sched/nvidia/rm" / "table.c",
        ),
    ),
    Target(
        "sched",
        (
            *_here("fuzz_sched"),
            *_glob(NATIVE / "core"),
            *(
                REPOSITORY / "tests" / "native" / "sched_sim" / f"{name}.c"
                for name in ("sim", "check", "report")
            ),
            REPOSITORY / "tests" / "native" / "sched_sim" / "scenario.c",
        ),
        include=NATIVE / "core",
    ),
    Target(
        "holder",
        (*_here("fuzz_holder"), NATIVE / "holder" / "intake.c", NATIVE / "holder" / "json_end.c"),
    ),
    Target(
        "mgpuds",
        (
            *_here("fuzz_mgpuds"),
            *(
                NATIVE / "holder" / f"{name}.c"
                for name in ("mgpud", "give_back", "manager", "store", "table", "saved_read", "saved_write")
            ),
        ),
    ),
    Target("hook", (*_here("fuzz_hook"), HOOK / "common" / "json.c")),
    Target(
        "launcher",
        (
            *_here("fuzz_launcher"),
            *(HOOK / "launcher" / f"{name}.c" for name in ("argv", "packet", "prepare", "spec_file")),
            *(HOOK / "common" / f"{name}.c" for name in ("conf", "connection", "json", "report")),
        ),
    ),
    Target("annotations"),
    Target("seccomp"),
    Target("control"),
    Target("listener_message"),
    Target("spec"),
    Target("quick_json"),
    Target("cdi"),
)


def _environment() -> dict[str, str]:
    # Under `make test SANITIZE=…` another sanitizer would be loaded into these.
    return {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}


def program(target: Target) -> list[str | Path]:
    """The command to run it with. AssertionError when a C target does not compile."""
    if not target.sources:
        return [sys.executable, "-m", "tests.fuzz.guided", target.name]
    FOLDER.mkdir(parents=True, exist_ok=True)
    out = FOLDER / target.name
    flags = ["-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{target.include}"]
    sanitize = ["-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all"]
    commands.run(
        "clang", *flags, *sanitize, "-o", out, *target.sources, env={"LD_PRELOAD": ""}, timeout_s=600
    )
    return [out]


@dataclass(frozen=True)
class Found:
    """How a run ended: status 0 when nothing was found. tried: inputs; artifact: the one that broke
    something.
    """

    status: int
    tried: int
    artifact: Path | None
    said: str


def run(target: Target, seconds: int) -> Found:
    """Fuzz for so long. What it learnt stays below build/fuzz for the next run."""
    corpus, known, broken = (FOLDER / kind / target.name for kind in ("corpus", "known", "broken"))
    for folder in (corpus, known, broken):
        folder.mkdir(parents=True, exist_ok=True)
    # Long ones to begin with: a fuzzer that starts from nothing takes its time to make any.
    chance = random.Random(target.name)
    for bytes_ in (64, 256, 1024, _MAX_BYTES):
        (known / f"chance-{bytes_}").write_bytes(chance.randbytes(bytes_))
    for seed in target.seeds.glob("*.hex"):
        (known / seed.stem).write_bytes(bytes.fromhex(seed.read_text()))
    options = [
        f"-max_total_time={seconds}",
        f"-max_len={_MAX_BYTES}",
        "-len_control=0",
        f"-timeout={_ONE_INPUT_S}",
        f"-rss_limit_mb={_MEMORY_MIB}",
        f"-artifact_prefix={broken}/",
        "-print_final_stats=1",
        "-verbosity=1",
    ]
    judged: list[str] = []
    if os.environ.get("CI"):
        # A change is judged by the same inputs each time; `make fuzz` tries new ones. Comparisons of
        # addresses guide the fuzzer too.
        options += [f"-seed={_SEED}", f"-runs={_INPUTS}"]
        judged = ["setarch", "--addr-no-randomize"]
    done = subprocess.run(
        [*judged, *program(target), *options, corpus, known],
        cwd=REPOSITORY,
        env=_environment(),
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds + 2 * _ONE_INPUT_S,
        check=False,
    )
    said = done.stdout + done.stderr
    artifact = re.search(r"Test unit written to (\S+)", said)
    tried = re.search(r"stat::number_of_executed_units:\s*(\d+)", said)
    return Found(
        done.returncode,
        int(tried[1]) if tried else 0,
        Path(artifact[1]) if artifact else None,
        "\n".join([line for line in said.splitlines() if "Instrumenting" not in line][-60:]),
    )
