"""Containers that their engine freezes: their work is suspended with them and goes on with them. The judge is
the simulated card's own account.
"""

import json
import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from oci_specs import paths
from tests.support import arbiter
from tests.support.arbiter import Arbiter
from tests.support.containerd import Containerd
from tests.support.dockerd import RUNTIME, Dockerd
from tests.support.load import INSIDE, Load, groups_of, load, time_of, working
from tests.support.places import IMAGE_NAME
from tests.support.podman import Podman
from tests.support.waiting import prompt, took_s, until

S = 1_000_000_000
SATURATE = ("saturate", "--kernel-us", "1000", "--queue", "4", "--seconds", "600")
CONFIG = "hold_ms = 40\npolicy = 'native-burst-share'\n"
# The freezer of cgroups' first version is looked at once a second.
SEEN_S = 60.0
SOURCE = f"type=bind,src={paths.libexec('mgpu-load')},dst={INSIDE}"


@pytest.fixture
def up(private_host: None) -> Iterator[Arbiter]:
    with arbiter.running("v100-16", node_config=CONFIG) as running:
        yield running


def row_of(mgpu: Arbiter, container: str) -> dict[str, Any]:
    [found] = [one for one in mgpu.containers() if one["container_id"] == container]
    return found


def stands_still(mgpu: Arbiter, pid: int, seconds: float = 0.3) -> bool:
    before = time_of(mgpu, pid)
    time.sleep(seconds)
    return time_of(mgpu, pid) == before


def is_paused(mgpu: Arbiter, container: str) -> bool:
    row = row_of(mgpu, container)
    return bool(row["paused"]) and not row["sched"]["enabled"]


def seen_paused(mgpu: Arbiter, container: str) -> None:
    until(lambda: is_paused(mgpu, container), f"{container} is paused", timeout_s=SEEN_S)
    assert row_of(mgpu, container)["sched"]["why"] == "paused"


def seen_running(mgpu: Arbiter, container: str, pid: int) -> None:
    until(lambda: not row_of(mgpu, container)["paused"], f"{container} goes on", timeout_s=SEEN_S)
    until(lambda: not stands_still(mgpu, pid, 0.05), f"{container} runs on the GPU")


@contextmanager
def paused(one: Load) -> Iterator[None]:
    one.made.call(one.mgpu.runtime, "pause", one.name)
    try:
        seen_paused(one.mgpu, one.name)
        yield
    finally:
        one.made.call(one.mgpu.runtime, "resume", one.name)


def test_kernel_goes_on_where_it_stopped(up: Arbiter) -> None:
    with load(up, "saturate", "--kernel-us", "3000000", "--queue", "1", "--kernels", "1") as one:
        working(one)
        pid = one.pid
        with paused(one):
            assert stands_still(up, pid)
            assert "bound, paused" in up.mgpu("ps")
        one.result()
        [group] = [each for each in groups_of(up, pid) if each.kernels]
        assert (group.kernels, group.kernel_ns, group.run_ns) == (1, 3 * S, 3 * S)


def test_paused_online_lets_offline_in(up: Arbiter) -> None:
    with load(up, *SATURATE, qos="offline") as offline:
        working(offline)
        with load(up, *SATURATE) as online:
            working(online)
            until(lambda: not offline.row()["sched"]["enabled"], "offline is preempted")
            with paused(online):
                seen_running(up, offline.name, offline.pid)
            until(lambda: not offline.row()["sched"]["enabled"], "offline is preempted again")
            seen_running(up, online.name, online.pid)


def test_paused_container_is_suspended_without_a_scheduler(private_host: None) -> None:
    with (
        arbiter.running("v100-16", node_config="schedule = false\n") as up,
        load(up, *SATURATE) as one,
        load(up, *SATURATE) as other,
    ):
        for each in (one, other):
            working(each)
        one.made.call(up.runtime, "pause", one.name)
        until(lambda: bool(one.row()["paused"]), "it is paused", timeout_s=SEEN_S)
        until(lambda: stands_still(up, one.pid), "it stands still")
        until(lambda: not stands_still(up, other.pid), "the other one goes on")
        one.made.call(up.runtime, "resume", one.name)
        seen_running(up, one.name, one.pid)


def goes_through(
    mgpu: Arbiter, container: str, pause: Callable[[], object], resume: Callable[[], object]
) -> None:
    until(lambda: bool(row_of(mgpu, container)["pid"]), "it is bound")
    pid = row_of(mgpu, container)["pid"]
    until(lambda: time_of(mgpu, pid) > 0, "it runs on the GPU")
    pause()
    seen_paused(mgpu, container)
    assert stands_still(mgpu, pid)
    resume()
    seen_running(mgpu, container, pid)


def test_docker_pause(docker_daemon: Dockerd) -> None:
    below = json.loads((docker_daemon.home / "daemon.json").read_text())["containerd"]
    with arbiter.running("v100-16", node_config=f"{CONFIG}containerd = ['{below}']\n") as up:
        docker_daemon.point_at(up.runtime)
        container = docker_daemon.docker(
            *["run", "--detach", "--network=none", f"--runtime={RUNTIME}", "--mount", f"{SOURCE},readonly"],
            *["--env", "MGPU_MEMORY_MIB=1024", IMAGE_NAME, INSIDE, *SATURATE],
        ).strip()
        until(lambda: bool(row_of(up, container)["containerd"]), "containerd has told")
        assert row_of(up, container)["containerd"]["namespace"] == "moby"
        goes_through(
            up,
            container,
            lambda: docker_daemon.docker("pause", container),
            lambda: docker_daemon.docker("unpause", container),
        )
        docker_daemon.docker("rm", "--force", container)


def test_podman_pause(pod: Podman, mgpu: Arbiter) -> None:
    container = pod.podman(
        "--runtime",
        mgpu.runtime,
        *["run", "--detach", "--network=none", *pod.run_options],
        *["--mount", f"{SOURCE},readonly", "--annotation", "mgpu.dev/memory-mib=1024", IMAGE_NAME, INSIDE],
        *SATURATE,
    ).strip()
    called = ("--runtime", mgpu.runtime)
    goes_through(
        mgpu,
        container,
        lambda: pod.podman(*called, "pause", container),
        lambda: pod.podman(*called, "unpause", container),
    )
    pod.podman(*called, "rm", "--force", "--time", "0", container)


@contextmanager
def stopped(containerd: Containerd) -> Iterator[None]:
    """Its processes stand still, with its socket open."""
    own = [
        int(entry)
        for entry in os.listdir("/proc")
        if entry.isdigit() and _is(int(entry), f"containerd\0--config\0{containerd.home}/config.toml")
    ]
    assert own
    for pid in own:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in own:
            os.kill(pid, signal.SIGCONT)


def _is(pid: int, command: str) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return file.read().startswith(command)
    except OSError:
        return False


def task_of(mgpu: Arbiter, container: str) -> str:
    """Its task's state, as containerd has told it last."""
    told = row_of(mgpu, container)["containerd"]
    return str(told["task"]) if told else ""


def test_containerd_pause_and_resume_are_followed(ctd: Containerd) -> None:
    container = f"t-{uuid.uuid4().hex[:8]}"
    config = f"{CONFIG}containerd = ['{ctd.address}']\n"
    with arbiter.running("v100-16", node_config=config) as up:
        ctd.ctr(
            *["run", "--detach", "--annotation", "mgpu.dev/memory-mib=1024", "--runc-binary"],
            up.runtime,
            *["--label", "nerdctl/name=job", "--mount", f"{SOURCE},options=bind:ro"],
            *[IMAGE_NAME, container, INSIDE, *SATURATE],
        )
        until(lambda: bool(row_of(up, container)["containerd"]), "containerd has told")
        told = row_of(up, container)["containerd"]
        assert (told["namespace"], told["name"], told["runtime"]) == (
            ctd.namespace,
            "job",
            "io.containerd.runc.v2",
        )
        assert up.mgpu("ps").splitlines()[1].endswith("job")
        goes_through(
            up,
            container,
            lambda: ctd.ctr("task", "pause", container),
            lambda: ctd.ctr("task", "resume", container),
        )
        until(lambda: task_of(up, container) == "running", "its task runs again")
        with stopped(ctd):
            # Nobody waits for containerd: what mgpud is asked it answers, and what runs goes on.
            pid = row_of(up, container)["pid"]
            prompt(lambda: took_s(lambda: row_of(up, container)), "an answer while containerd is silent")
            until(lambda: not stands_still(up, pid, 0.1), "it runs on the GPU")
            assert len(up.mgpu("describe", container)) > 0
        # It may have been taken for dead meanwhile; what happens before it is found again is not reported.
        ctd.ctr("task", "pause", container)
        until(lambda: task_of(up, container) == "paused", "it is heard again")
        ctd.ctr("task", "resume", container)
        until(lambda: task_of(up, container) == "running", "also that it runs")
        ctd.remove(container)
        until(lambda: not up.containers(), "its grant is given back")
        log = up.root / "log" / "mgpud.log"
        until(lambda: f"event=ended container={container} status=137" in log.read_text(), "its end is told")
