"""Process checkpoints of the simulated libcuda, through mgpu-checkpoint. NVIDIA's public reference is the
judge of states and errors (CUDA Driver API, "CUDA Checkpointing"), and its README of cuda-checkpoint of what
a locked and a checkpointed process may do.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sim.cards import CardProcess, ask
from tests.sim.conftest import library_environment
from tests.support.checkpoint import Checkpoint, checkpoint_program
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a mount namespace with device nodes")
CASES = Path(__file__).with_name("checkpoint_cases.py")


class Program:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid: int = self.read()

    def read(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, question: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(question + "\n")

    def __call__(self, question: str) -> Any:
        self.ask(question)
        return self.read()


NewProgram = Callable[[str], Program]


@pytest.fixture
def program(supervised: Callable[[list[str]], list[str]]) -> Iterator[NewProgram]:
    started: list[Program] = []

    def start(case: str) -> Program:
        process = subprocess.Popen(
            supervised([sys.executable, os.fspath(CASES), case]),
            env=library_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        started.append(Program(process))
        return started[-1]

    yield start
    for one in started:
        with one.process:
            one.process.kill()


@contextmanager
def evicted(checkpoint: Checkpoint, pid: int) -> Iterator[None]:
    assert checkpoint(f"lock {pid} 10000") == "locked"
    assert checkpoint(f"checkpoint {pid}") == "checkpointed"
    yield
    assert checkpoint(f"restore {pid}") == "locked"
    assert checkpoint(f"unlock {pid}") == "running"


def held(card: CardProcess) -> tuple[list[int], list[Any]]:
    """Bytes of each card; open files of the driver's."""
    return [one.used_bytes for one in card.account().cards], ask(card.admin_socket, "files")


def test_process_goes_on_with_its_data_after_it_held_nothing(
    simulated: CardProcess, program: NewProgram, checkpoint: Checkpoint
) -> None:
    one = program("everything")
    before, full = one("look"), held(simulated)[0]
    for _ in range(2):
        with evicted(checkpoint, one.pid):
            pass
        with evicted(checkpoint, one.pid):
            until(lambda: held(simulated) == ([0, 0, 0], []), "its files are closed")
            before["pinned"] = one("pin")
        assert held(simulated)[0] == full
        assert one("look") == before
        assert one("work")["same"]


def test_kernels_are_done_once_and_whole(
    simulated: CardProcess, program: NewProgram, checkpoint: Checkpoint
) -> None:
    """The lock waits for what was submitted, and the card ran it to its end."""
    one = program("plain")
    one("spin")
    assert checkpoint(f"lock {one.pid} 20000") == "locked"
    (group,) = simulated.account().cards[0].engines[0].groups
    assert (group.kernels, group.kernel_ns, group.pending) == (1, 400_000_000, 0)


def test_program_that_copies_nothing_is_moved_in_the_time_that_its_bytes_take(
    simulated: CardProcess, program: NewProgram, checkpoint: Checkpoint
) -> None:
    one = program("holder")
    full = held(simulated)[0]
    with evicted(checkpoint, one.pid):
        [moved] = [each for each in simulated.account().cards[0].ended if each.tgid == one.pid]
        # The V100's bus carries 12 MiB in a millisecond.
        assert moved.kernel_ns == 10_000_000
    assert held(simulated)[0] == full, "it takes no more than it had"
    assert one("holds")


def test_calls_wait_while_a_process_is_locked(program: NewProgram, checkpoint: Checkpoint) -> None:
    one = program("plain")
    before = one("look")
    with evicted(checkpoint, one.pid):
        one("call")
        time.sleep(0.2)
        assert one("blocked")
    assert one("look") == before


def test_lock_that_takes_too_long_leaves_the_process_running(
    program: NewProgram, checkpoint: Checkpoint
) -> None:
    one = program("plain")
    one("spin long")
    assert checkpoint(f"lock {one.pid} 50") == "CUDA_ERROR_NOT_READY"
    assert checkpoint(f"state {one.pid}") == "running"
    one("spin")


def test_process_can_be_asked_as_soon_as_it_has_begun(program: NewProgram) -> None:
    assert program("begins")("found") == 50


def test_lock_waits_for_functions_of_the_program(program: NewProgram, checkpoint: Checkpoint) -> None:
    one = program("host_function")
    assert checkpoint(f"lock {one.pid} 50") == "CUDA_ERROR_NOT_READY"
    one("proceed")
    assert checkpoint(f"lock {one.pid} 10000") == "locked"


@pytest.mark.parametrize("case", ["managed", "given_away"])
def test_memory_that_cannot_be_moved_is_refused_and_stays(
    simulated: CardProcess, program: NewProgram, checkpoint: Checkpoint, case: str
) -> None:
    one = program(case)
    before = one("look"), held(simulated)[0]
    assert checkpoint(f"lock {one.pid} 10000") == "locked"
    assert checkpoint(f"checkpoint {one.pid}") == "CUDA_ERROR_NOT_SUPPORTED"
    assert checkpoint(f"unlock {one.pid}") == "running"
    assert (one("look"), held(simulated)[0]) == before


def test_steps_are_taken_in_turn(program: NewProgram, checkpoint: Checkpoint) -> None:
    one = program("plain")
    illegal = "CUDA_ERROR_ILLEGAL_STATE"
    allowed = {
        "running": {"lock": "locked"},
        "locked": {"checkpoint": "checkpointed", "unlock": "running"},
        "checkpointed": {"restore": "locked"},
    }
    for step in ("lock", "checkpoint", "restore", "unlock"):
        state = checkpoint(f"state {one.pid}")
        for verb in {"lock", "checkpoint", "restore", "unlock"} - allowed[state].keys():
            assert checkpoint(f"{verb} {one.pid}" + " 100" * (verb == "lock")) == illegal
        assert checkpoint(f"{step} {one.pid}" + " 9000" * (step == "lock")) == allowed[state][step]


def test_process_comes_back_on_another_card_of_the_model(
    simulated: CardProcess, program: NewProgram, checkpoint: Checkpoint
) -> None:
    first, second, other = (card.uuid for card in simulated.cards())
    one = program("plain")
    before, full = one("look"), held(simulated)[0]
    checkpoint(f"lock {one.pid} 10000")
    checkpoint(f"checkpoint {one.pid}")
    some = f"restore {one.pid} {first}={second}"
    for wrong in (
        some,
        f"{some} {second}={second} {other}={other}",
        f"{some} {second}={other} {other}={first}",
    ):
        assert checkpoint(wrong) == "CUDA_ERROR_INVALID_VALUE"
        assert checkpoint(f"state {one.pid}") == "checkpointed"
    assert checkpoint(f"{some} {second}={first} {other}={other}") == "locked"
    assert checkpoint(f"unlock {one.pid}") == "running"
    assert held(simulated)[0] == [full[1], full[0], full[2]]
    assert one("look") == before


def test_without_room_a_process_stays_checkpointed_with_its_data(
    simulated: CardProcess, program: NewProgram, checkpoint: Checkpoint
) -> None:
    one = program("plain")
    before = one("look")
    checkpoint(f"lock {one.pid} 10000")
    checkpoint(f"checkpoint {one.pid}")
    two = program("plain")
    two("fill")
    full = held(simulated)[0]
    assert checkpoint(f"restore {one.pid}") == "CUDA_ERROR_OUT_OF_MEMORY"
    assert (checkpoint(f"state {one.pid}"), held(simulated)[0]) == ("checkpointed", full)
    two.process.kill()
    until(lambda: held(simulated)[0] == [0, 0, 0], "the other is gone")
    assert checkpoint(f"restore {one.pid}") == "locked"
    assert checkpoint(f"unlock {one.pid}") == "running"
    assert one("look") == before


def test_process_that_another_card_had_no_room_for_comes_back_to_its_own(
    simulated: CardProcess, program: NewProgram, checkpoint: Checkpoint
) -> None:
    first, second, other = (card.uuid for card in simulated.cards())
    one = program("plain")
    before, full = one("look"), held(simulated)[0]
    checkpoint(f"lock {one.pid} 10000")
    checkpoint(f"checkpoint {one.pid}")
    two = program("plain")
    two("fill")
    swapped = f"restore {one.pid} {first}={second} {second}={first} {other}={other}"
    for _ in range(2):
        assert checkpoint(f"restore {one.pid}") == "CUDA_ERROR_OUT_OF_MEMORY"
    assert checkpoint(swapped) == "locked"
    assert checkpoint(f"checkpoint {one.pid}") == "checkpointed"
    back = f"restore {one.pid} {second}={first} {first}={second} {other}={other}"
    for _ in range(2):
        assert checkpoint(back) == "CUDA_ERROR_OUT_OF_MEMORY"
    two.process.kill()
    until(lambda: held(simulated)[0] == [0, 0, 0], "the other is gone")
    assert checkpoint(back) == "locked"
    assert checkpoint(f"unlock {one.pid}") == "running"
    assert (held(simulated)[0], one("look")) == (full, before)


def test_lock_ends_with_its_caller(program: NewProgram, checkpoint: Checkpoint) -> None:
    one = program("plain")
    one("spin long")
    checkpoint.send(f"lock {one.pid} 60000")
    time.sleep(0.2)
    checkpoint.kill()
    with checkpoint_program() as another:
        assert another(f"state {one.pid}") == "running"
        one("spin")


def test_step_ends_with_its_caller_and_is_taken_back(program: NewProgram) -> None:
    """All of a card takes more than a second to be copied."""
    one = program("plain")
    before = one("look")
    one("fill")

    def give_up(step: str) -> None:
        with checkpoint_program() as caller:
            caller.send(f"{step} {one.pid}")
            time.sleep(0.3)

    with checkpoint_program() as checkpoint:
        assert checkpoint(f"lock {one.pid} 10000") == "locked"
        give_up("checkpoint")
        assert checkpoint(f"state {one.pid}") == "locked"
        assert checkpoint(f"checkpoint {one.pid}") == "checkpointed"
        give_up("restore")
        assert checkpoint(f"state {one.pid}") == "checkpointed"
        assert checkpoint(f"restore {one.pid}") == "locked"
        assert checkpoint(f"unlock {one.pid}") == "running"
    assert one("look") == before


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_next_caller_goes_on_from_any_state(program: NewProgram, steps: int) -> None:
    one = program("plain")
    before = one("look")
    states = ["locked", "checkpointed", "locked", "running"]
    verbs = [f"lock {one.pid} 10000", f"checkpoint {one.pid}", f"restore {one.pid}", f"unlock {one.pid}"]
    with checkpoint_program() as first:
        assert [first(verb) for verb in verbs[:steps]] == states[:steps]
    with checkpoint_program() as second:
        assert second(f"state {one.pid}") == states[steps - 1]
        assert [second(verb) for verb in verbs[steps:]] == states[steps:]
    assert one("look") == before


def test_process_that_ends_is_gone_with_everything(
    simulated: CardProcess, program: NewProgram, checkpoint: Checkpoint
) -> None:
    one, two = program("plain"), program("plain")
    two("spin long")
    checkpoint(f"lock {one.pid} 10000")
    checkpoint(f"checkpoint {one.pid}")
    checkpoint.send(f"lock {two.pid} 60000")
    time.sleep(0.2)
    for ended in (one, two):
        os.kill(ended.pid, 9)
    assert checkpoint.read()["error"] == "CUDA_ERROR_INVALID_VALUE"
    until(lambda: held(simulated) == ([0, 0, 0], []), "nothing is left")
    # Its files are closed before the kernel says that it has ended.
    until(lambda: checkpoint(f"state {one.pid}") == "CUDA_ERROR_INVALID_VALUE", "the process is no more")


def test_child_of_a_checkpointed_process_starts_anew(program: NewProgram, checkpoint: Checkpoint) -> None:
    one = program("plain")
    before = one("look")
    not_initialized, success = 3, 0
    with evicted(checkpoint, one.pid):
        assert one("fork") == not_initialized + success
    assert one("look") == before


def test_process_without_cuda_is_said(checkpoint: Checkpoint) -> None:
    assert checkpoint(f"state {os.getpid()}") == "CUDA_ERROR_NOT_INITIALIZED"
    assert checkpoint("lock 4194304 10") == "CUDA_ERROR_INVALID_VALUE"


@pytest.mark.parametrize(
    "line",
    [
        "",
        "state",
        "state x",
        "state 0",
        "lock 1",
        "lock 1 0",
        "lock 1 1 1",
        "evict 1",
        "restore 1 a=b",
        "x " * 99,
    ],
)
def test_bad_command_gets_one_answer(checkpoint: Checkpoint, line: str) -> None:
    assert checkpoint(line) == "INVALID_COMMAND"
    assert checkpoint(f"state {os.getpid()}") == "CUDA_ERROR_NOT_INITIALIZED"


def test_library_without_checkpoints_is_refused_in_one_line() -> None:
    with checkpoint_program("libc.so.6") as refused:
        assert refused.process.wait() == 1
