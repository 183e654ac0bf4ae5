"""Containers whose holder and mgpud are killed at once, under runc, where nothing outlives both, as in a pod:
what has lost the listener is ended, or kept where node.toml says so, and nothing else is.
"""

import os
import re
import signal
import subprocess
import time
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from oci_specs.refusal import Refusal
from tests.support import arbiter, scrape
from tests.support.arbiter import Arbiter
from tests.support.asking import ASKS, ENV, asking, is_served
from tests.support.bundle import Bundle, bundle
from tests.support.commands import run
from tests.support.waiting import until

GPUSTAT = ("gpustat", "--no-header")
# What mgpud's looks take at most, on a busy machine too; and more than they take on a quiet one.
JUDGED_S = 30.0
QUIET_S = 4.0


def with_privileges(made: Bundle, may_gain: bool) -> None:
    """A runtime loads the filter early, or, of who may gain none, as late as it can."""

    def change(config: Any) -> None:
        config["process"]["noNewPrivileges"] = not may_gain

    made.edit(change)


def create(mgpu: Arbiter, made: Bundle) -> None:
    argv = made.argv(mgpu.runtime, "create", "--bundle", made.path, made.container)
    # What it starts keeps its output open.
    subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True, timeout=60)


def both_killed(mgpu: Arbiter) -> None:
    """Neither lives long enough to give the other anything."""
    pids = [*mgpu.pids_of("holder"), *mgpu.pids_of("mgpud")]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            os.kill(pid, number)

    def serves() -> bool:
        with suppress(Refusal):
            return mgpu.ask("health")["pid"] not in pids
        return False

    until(serves, "the next mgpud serves", timeout_s=30)


def row_of(mgpu: Arbiter, made: Bundle) -> dict[str, object] | None:
    return next((row for row in mgpu.containers() if row["container_id"] == made.container), None)


def log_of(mgpu: Arbiter) -> str:
    return (mgpu.root / "log" / "mgpud.log").read_text()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("runtime", ["runc", "crun"])
@pytest.mark.parametrize("may_gain", [True, False])
def test_container_without_its_listener_is_ended(private_host: None, runtime: str, may_gain: bool) -> None:
    with (
        arbiter.running("v100-16:1", runtime=runtime, stored=False) as up,
        asking(up.runtime, partial(with_privileges, may_gain=may_gain)) as (lost, running),
        bundle("sleep", "99", env=ENV) as later,
    ):
        with_privileges(later, may_gain)
        create(up, later)
        assert is_served(running)
        both_killed(up)
        assert running.process.wait(JUDGED_S) == 128 + signal.SIGKILL
        assert f"event=lost-listener container={lost.container} what=ended" in log_of(up)
        # Created and not started: its program has not begun, so there is nothing to end.
        assert row_of(up, later) is not None
        with asking(up.runtime) as (_, anew):
            time.sleep(QUIET_S)
            assert is_served(anew)
            assert row_of(up, later) is not None
            # It has sent its listener to the holder that was killed.
            run(*later.argv(up.runtime, "start", later.container))
            until(lambda: row_of(up, later) is None, "it is ended", timeout_s=JUDGED_S)
            assert is_served(anew)
        found = 1 if runtime == "crun" and not may_gain else 2
        assert scrape.scrape(up.root).one("mgpu_lost_listeners_total") == found


@pytest.mark.timeout(180)
def test_kept_container_is_shown_and_its_probes_pass(private_host: None) -> None:
    with (
        arbiter.running("v100-16:1", node_config='lost_listener = "keep"\n', stored=False) as up,
        asking(up.runtime) as (lost, running),
    ):
        # What the holder has not taken yet waits for the next one, and is not lost.
        assert is_served(running)
        both_killed(up)
        until(lambda: "lost-listener" in up.mgpu("ps"), "ps shows it", timeout_s=JUDGED_S)
        assert not is_served(running)
        assert "lost: the GPU calls of its main process fail" in up.mgpu("describe", lost.container)
        health = up.try_mgpu("health")
        assert health.status == 2
        assert re.search(rf"failed +listener +{lost.container} has lost its own", health.out)
        assert "leftover-listeners" in up.try_mgpu("doctor", "-o", "json").out
        assert scrape.scrape(up.root).one("mgpu_container_lost_listener") == 1
        # An exec has a filter and a listener of its own: a probe sees nothing.
        assert "512 MB" in lost.call(up.runtime, "exec", lost.container, *GPUSTAT)
        assert "what=kept" in log_of(up)
        # The next mgpud finds out the same.
        up.kill("mgpud")
        until(lambda: log_of(up).count("lost-listener") == 2, "it is said again", timeout_s=30)


@pytest.mark.timeout(180)
def test_frozen_container_is_judged_as_others(private_host: None) -> None:
    with (
        arbiter.running("v100-16:1", stored=False) as up,
        asking(up.runtime) as (lost, running),
        asking(up.runtime) as (well, other),
    ):
        assert is_served(running)
        run(*lost.argv(up.runtime, "pause", lost.container))
        run(*well.argv(up.runtime, "pause", well.container))
        until(lambda: all(row["paused"] for row in up.containers()), "they are frozen")
        # By itself a pause loses nothing, nor does the death of one of the two.
        up.kill("mgpud")
        time.sleep(QUIET_S)
        up.kill("holder")
        time.sleep(QUIET_S)
        run(*well.argv(up.runtime, "resume", well.container))
        assert is_served(other)
        both_killed(up)
        until(lambda: "container=" + lost.container in log_of(up), "it is said", timeout_s=JUDGED_S)
        # A frozen process of a cgroup of the first version ends when it is thawed.
        subprocess.run(
            lost.argv(up.runtime, "resume", lost.container), stderr=subprocess.DEVNULL, check=False
        )
        assert running.process.wait(JUDGED_S) == other.process.wait(JUDGED_S) == 128 + signal.SIGKILL


@pytest.mark.timeout(180)
def test_upgrades_and_single_deaths_end_nobody(private_host: None) -> None:
    with arbiter.running("v100-16:1") as up, asking(up.runtime) as (_, running):
        with bundle(*ASKS, env=ENV) as created:
            create(up, created)
            for happens in ("upgrade", "mgpud", "holder", "upgrade", "holder", "mgpud"):
                if happens == "upgrade":
                    up.mgpu("upgrade")
                else:
                    os.kill(up.pid_of(happens), signal.SIGKILL)
                time.sleep(QUIET_S)
                assert is_served(running), happens
                assert row_of(up, created) is not None, happens
        assert "lost-listener" not in log_of(up)
