"""Containers that call all the time, while holder and mgpud are killed and replaced: none of them notices."""

import fcntl
import os
import signal
from contextlib import ExitStack
from functools import partial

import pytest

from tests.support import arbiter
from tests.support.programs import Programs
from tests.support.steady import LONGEST_S, answers, holder_killed, mgpud_killed, steady, upgraded
from tests.support.waiting import until

CONTAINERS = 3


@pytest.mark.timeout(180)
def test_containers_survive_upgrades_and_kills(private_host: None, built: Programs) -> None:
    with arbiter.running("v100-16:1") as up, ExitStack() as stack:
        containers = [stack.enter_context(steady(up, built)) for _ in range(CONTAINERS)]
        first = up.pid_of("holder")
        for happens in (upgraded, holder_killed, mgpud_killed, holder_killed, upgraded):
            happens(up)
            assert all(one.goes_on() < LONGEST_S for one in containers), happens
            if up.pid_of("holder") == first:
                assert "level=error" not in (up.root / "log" / "mgpud.log").read_text(), "it was planned"
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
def test_next_holder_that_finds_the_lock_taken_costs_no_container(
    private_host: None, built: Programs
) -> None:
    """What a holder was about to execute as it was killed has its lock for some instants more."""
    with arbiter.running("v100-16:1") as up, steady(up, built) as one:
        log = up.root.parent / "up.log"
        os.kill(up.pid, signal.SIGSTOP)
        for program in ("holder", "mgpud"):
            up.kill(program)
        with (up.root / "seccomp.sock.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            os.kill(up.pid, signal.SIGCONT)
            until(lambda: "mgpu-holder ended with status 1" in log.read_text(), "one is refused")
        until(lambda: answers(up), "the next mgpud serves")
        one.goes_on()


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
