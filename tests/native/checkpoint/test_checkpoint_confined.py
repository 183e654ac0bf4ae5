"""mgpu-checkpoint runs the host's libcuda against a tenant's: taken over, it moves memory and no more."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.checkpoint import Checkpoint, checkpoint_program

SOURCE = Path(__file__).with_name("libcuda_tries.c")
TRIES = {
    1: "another program",
    2: "another process",
    3: "a new file",
    4: "a new file without a name",
    5: "a folder",
    6: "a mount",
    7: "a namespace",
    8: "another mode of a file",
    9: "the network",
    10: "SYS_ADMIN",
    11: "SYS_MODULE",
    12: "another user",
    13: "a program in the kernel",
}
NEEDS = {
    50: "a thread",
    51: "a socket",
    52: "a device",
    53: "memory",
    54: "SYS_PTRACE",
    55: "a descriptor of the program's",
    56: "no privileges by a program that it starts",
}


@pytest.fixture(scope="module")
def tries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkpoint]:
    library = tmp_path_factory.mktemp("tries") / "libcuda.so"
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread"]
    subprocess.run(["cc", *flags, "-o", str(library), str(SOURCE)], check=True)
    with checkpoint_program(str(library)) as running:
        yield running


@pytest.mark.parametrize("number", TRIES, ids=TRIES.get)
def test_libcuda_taken_over_is_refused(tries: Checkpoint, number: int) -> None:
    assert tries(f"state {number}") == "REFUSED"


@pytest.mark.parametrize("number", NEEDS, ids=NEEDS.get)
def test_libcuda_that_moves_memory_has_what_that_takes(tries: Checkpoint, number: int) -> None:
    assert tries(f"state {number}") == "running"
