"""Containers that call all the time, and what may happen to mgpu meanwhile."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from oci_specs import build
from oci_specs.refusal import Refusal
from runtime_hook import holder
from tests.support.arbiter import Arbiter
from tests.support.bundle import Bundle
from tests.support.programs import Programs
from tests.support.started import Foreground
from tests.support.waiting import until

ENV = {"MGPU_MEMORY_MIB": "512"}
# A call that waits for the next mgpud: generous, as the machine may have no time for it.
LONGEST_S = 20.0


@dataclass(frozen=True)
class Steady:
    """A container that calls all the time."""

    made: Bundle
    running: Foreground

    def goes_on(self) -> float:
        """It calls now, and none has failed; the longest of its calls since the last time, in seconds."""
        self._said()
        time.sleep(0.05)
        longest_s = 0.0

        def called() -> bool:
            nonlocal longest_s
            calls, took_s = self._said()
            longest_s = max(longest_s, took_s)
            return calls > 0

        until(called, "it calls")
        return longest_s

    def _said(self) -> tuple[int, float]:
        self.running.tell()
        said = self.running.line()
        found = re.fullmatch(r"calls (\d+) longest_us (\d+)", said)
        assert found is not None, said
        return int(found[1]), int(found[2]) / 1e6


@contextmanager
def steady(mgpu: Arbiter, built: Programs, threads: int = 2, program: str = "steady") -> Iterator[Steady]:
    with built.bundle(program, str(threads), env=ENV) as made, made.running(mgpu.runtime) as running:
        assert running.line() == "up"
        yield Steady(made, running)


def killed(mgpu: Arbiter, program: str) -> None:
    """kill -9, and the next one is there."""
    pid = mgpu.kill(program)
    until(lambda: mgpu.pids_of(program) not in ([], [pid]), f"another {program}", timeout_s=30)


def answers(mgpu: Arbiter) -> bool:
    with suppress(Refusal):
        return bool(mgpu.ask("health")["ok"])
    return False


def holder_killed(mgpu: Arbiter) -> None:
    listeners = holder.status(mgpu.root / "holder.sock").listeners
    killed(mgpu, "holder")

    def is_back() -> bool:
        with suppress(Refusal):
            return holder.status(mgpu.root / "holder.sock").listeners == listeners
        return False

    until(is_back, "it has what the one before had", timeout_s=30)


def mgpud_killed(mgpu: Arbiter) -> None:
    killed(mgpu, "mgpud")
    until(lambda: answers(mgpu), "the next one serves", timeout_s=30)


def upgraded(mgpu: Arbiter) -> None:
    holder_pid, mgpud_pid = mgpu.pid_of("holder"), mgpu.pid_of("mgpud")
    first, second = mgpu.mgpu("upgrade").splitlines()
    here = re.escape(build.build())
    assert re.fullmatch(
        rf"holder \(pid {holder_pid}\): {here} in place of {here}; it holds \d+ listeners", first
    )
    assert re.match(rf"mgpud \(pid \d+\): {here} in place of {here} \(pid {mgpud_pid}\) after ", second)
    assert mgpu.pid_of("holder") == holder_pid
    assert mgpu.pid_of("mgpud") != mgpud_pid
