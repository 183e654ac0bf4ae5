"""Containers that call all the time, while holder and mgpud are killed and replaced: none of them notices."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial

import pytest

from mgpu_cli import holder
from oci_specs import build
from oci_specs.refusal import Refusal
from tests.support import arbiter
from tests.support.arbiter import Arbiter
from tests.support.bundle import Bundle, bundle
from tests.support.programs import Programs, inside
from tests.support.started import Foreground, foreground
from tests.support.waiting import until

ENV = {"MGPU_MEMORY_MIB": "512"}
CONTAINERS = 3
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
    with bundle(inside(program), str(threads), env=ENV, mounts=[built.oci_mount]) as made:
        argv = made.argv(mgpu.runtime, "run", "--bundle", made.path, made.container)
        with foreground(argv) as running:
            assert running.line() == "up"
            yield Steady(made, running)


def killed(mgpu: Arbiter, program: str) -> None:
    """kill -9, and the next one is there."""
    pid = mgpu.pid_of(program)
    os.kill(pid, signal.SIGKILL)
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


@pytest.mark.timeout(180)
def test_containers_survive_upgrades_and_kills(private_host: None, built: Programs) -> None:
    with arbiter.running("v100-16:1") as up, ExitStack() as stack:
        containers = [stack.enter_context(steady(up, built)) for _ in range(CONTAINERS)]
        for happens in (upgraded, holder_killed, mgpud_killed, holder_killed, upgraded):
            happens(up)
            assert all(one.goes_on() < LONGEST_S for one in containers), happens
        # An exec brings another listener of the same container.
        made = containers[0].made
        assert "512 MB" in made.call(up.runtime, "exec", made.container, "gpustat", "--no-header")
        with steady(up, built, threads=1) as another:
            another.goes_on()
        assert all(one.goes_on() < LONGEST_S for one in containers)
        stack.close()
        until(lambda: up.containers() == [], "the grants are back")
        until(
            lambda: [card.used_bytes for card in up.account().cards] == up.used_bytes() == [0],
            "so is memory",
        )


@pytest.mark.timeout(180)
def test_mgpud_that_cannot_serve_does_not_take_over(private_host: None) -> None:
    with arbiter.running("v100-16:1") as up:
        mgpud_pid = up.pid_of("mgpud")
        up.root.joinpath("node.toml").write_text("no such = thing")
        done = up.try_mgpu("upgrade")
        assert done.status == 1
        assert f"the new mgpud does not serve, and that before (pid {mgpud_pid}) goes on" in done.err
        assert up.pid_of("mgpud") == up.ask("health")["pid"] == mgpud_pid


def test_killed_mgpu_up_leaves_no_process(private_host: None) -> None:
    with arbiter.running("v100-16:1") as up:

        def ended(program: str) -> bool:
            return up.pids_of(program) == []

        os.kill(up.pid, signal.SIGKILL)
        for program in arbiter.PROGRAMS:
            until(partial(ended, program), f"{program} ends", timeout_s=30)
