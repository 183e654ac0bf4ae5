"""Many containers that come and go while engines and shims die: nothing of them stays on the machine.

But for what containerd leaves behind by itself. The socket of a shim that is killed stays: with the plain
runtime it is the same, and such sockets are counted. A shim that is being started when containerd goes away
is lost, also with the plain runtime, and so is one whose pod was being stopped, since containerd gives that
call up: no container is on its way in or out while containerd restarts. containerd 2.1 ends the sandbox of a
pod whose shim is killed and forgets its other containers, which run on, with the plain runtime too: these are
deleted by runc. And but for the socket of dockerd's
own network library, which stays now and then where dockerd ends in the middle of its work.
"""

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cri.client import CallError
from tests.support import containerd, cri
from tests.support.arbiter import Arbiter, until_empty
from tests.support.commands import run
from tests.support.cri import OnContainerd, Pod, retried
from tests.support.dockerd import RUNTIME, Dockerd
from tests.support.leftovers import Standing, standing
from tests.support.places import IMAGE_NAME
from tests.support.programs import INSIDE, Programs, inside
from tests.support.waiting import until

REQUEST = {"mgpu.dev/memory-mib": "512"}
HANDLERS = (cri.BY_SHIM, cri.BY_BINARY)
SETTLE_S = 60.0
SHIM_SOCKETS = Path("/run/containerd/s")
RUNTIME_STATE = Path("/run/containerd/runc", cri.NAMESPACE)


@dataclass(frozen=True)
class Size:
    """How many in all, and how many of them at once."""

    count: int
    at_once: int


def soak(size: Size) -> object:
    return pytest.param(size, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])


def nothing_left(look: Callable[[], Standing], before: Standing, log: Path) -> None:
    """log: the engine's, which may say what became of what is left."""
    deadline = time.monotonic() + SETTLE_S
    while left := look().less(before):
        assert time.monotonic() < deadline, f"{json.dumps(left, indent=1)}\n{told(log, str(left))}"
        time.sleep(0.2)


def told(log: Path, left: str) -> str:
    """The lines of a log that name any container of those that are left."""
    ids = set(re.findall(r"\b[0-9a-f]{64}\b", left))
    return "\n".join(line for line in log.read_text().splitlines() if any(one in line for one in ids))


def with_interruptions(work: list[Future[None]], *interruptions: Callable[[], None]) -> None:
    """Waits for the work, and interrupts it after equal parts of it. The first failure is raised."""
    for number, interrupt in enumerate(interruptions, start=1):
        until = number * len(work) // (len(interruptions) + 1)
        while sum(one.done() for one in work) < until:
            time.sleep(0.05)
        interrupt()
    for one in work:
        one.result()


class Ways:
    """Containers on their way in or out, as contexts; none_of_them is one in which there are none."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._under_way = 0
        self._closed = False

    def __enter__(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._closed)
            self._under_way += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._under_way -= 1
            self._changed.notify_all()

    @contextmanager
    def none_of_them(self) -> Iterator[None]:
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: self._under_way == 0)
        try:
            yield
        finally:
            with self._changed:
                self._closed = False
                self._changed.notify_all()


class Life:
    """One pod from its start to its end, as a kubelet would see it through.

    killed: the container whose shim was killed.
    """

    def __init__(self, kubelet: OnContainerd, built: Programs, ways: Ways, number: int) -> None:
        self.killed: str | None = None
        self._kubelet = kubelet
        self._ways = ways
        self._number = number
        self._spec = cri.pod_of(inside("hold"), "50", annotations=REQUEST)
        self._mounts = [{"host_path": str(built.folder), "container_path": INSIDE, "readonly": True}]

    def __call__(self) -> None:
        pod = self._started()
        with suppress(CallError):
            self._used(pod)
        if self._number % 6 in (1, 4):
            shim = self._kubelet.shim_of(pod)
            if shim is not None:
                os.kill(shim, signal.SIGKILL)
                self.killed = pod.container
        retried(self._removed)

    def _started(self) -> Pod:
        with self._ways:
            return self._kubelet.run(self._spec, HANDLERS[self._number % 2], mounts=self._mounts)

    def _used(self, pod: Pod) -> None:
        """What is asked of a pod while it runs. The engine may go away at any of it."""
        container, kubelet = pod.container, self._kubelet
        kubelet.execute(container, "true")
        kubelet.client.call("UpdateContainerResources", container_id=container, linux={"cpu_shares": 512})
        kubelet.client.call("ContainerStats", container_id=container)
        if self._number % 4 == 0:
            kubelet.containerd.try_ctr("task", "pause", container)
            kubelet.containerd.try_ctr("task", "resume", container)

    def _removed(self) -> None:
        with self._ways:
            for sandbox in self._kubelet.sandboxes(self._spec.name):
                self._kubelet.remove_sandbox(sandbox)


@pytest.mark.parametrize("size", [Size(24, 6), soak(Size(200, 20))])
def test_pods(kubelet: OnContainerd, mgpu: Arbiter, built: Programs, size: Size) -> None:
    kubelet.point_at(mgpu.runtime)
    ways = Ways()
    Life(kubelet, built, ways, 0)()
    lives = [Life(kubelet, built, ways, number) for number in range(size.count)]

    def look() -> Standing:
        return standing(mgpu, [kubelet.home.name])

    def restart() -> None:
        with ways.none_of_them():
            kubelet.restart()

    until_empty(mgpu)
    before, pods_before = look(), kubelet.sandboxes()
    with ThreadPoolExecutor(size.at_once) as pool:
        with_interruptions([pool.submit(life) for life in lives], restart, restart)
    killed = [life.killed for life in lives if life.killed]
    if containerd.major() >= 2:
        delete_forgotten(killed)
    before.sockets[str(SHIM_SOCKETS)] += len(killed)
    nothing_left(look, before, kubelet.home / "containerd.log")
    assert set(kubelet.sandboxes()) <= set(pods_before)
    assert all(life.killed for life in lives[1::6]), "no shim was killed"


def delete_forgotten(containers: list[str]) -> None:
    for container in containers:
        if (RUNTIME_STATE / container).exists():
            run("runc", "--root", RUNTIME_STATE, "delete", "--force", container)


def use(docker: Dockerd, built: Programs, ways: Ways, number: int) -> None:
    """One container of dockerd's, whatever becomes of it in between; in the end there is none."""
    name = f"life-{number}"
    start = ["run", "--detach", "--name", name, "--network=none", f"--runtime={RUNTIME}", "--stop-timeout=1"]
    with ways:
        docker.try_docker(
            *start, *built.docker_mount, "--env", "MGPU_MEMORY_MIB=512", IMAGE_NAME, inside("hold"), "50"
        )
    docker.try_docker("exec", name, "true")
    docker.try_docker("update", "--cpu-shares=512", name)
    if number % 2 == 0:
        docker.try_docker("pause", name)
        docker.try_docker("unpause", name)
    if number % 3 == 0:
        with ways:
            docker.try_docker("restart", "--time=0", name)
    deadline = time.monotonic() + 60.0
    while True:
        with ways:
            done = docker.try_docker("rm", "--force", name)
        if done.status == 0 or "No such" in done.err:
            break
        assert time.monotonic() < deadline, str(done)
        time.sleep(0.2)


def none_listed(docker: Dockerd) -> bool:
    """What dockerd denied to know while it went away and knows again is removed as an operator would remove
    it.
    """
    docker.clear()
    return docker.containers() == []


@pytest.mark.parametrize("size", [Size(9, 3), soak(Size(60, 10))])
def test_containers_of_docker(docker: Dockerd, mgpu: Arbiter, built: Programs, size: Size) -> None:
    def look() -> Standing:
        return standing(mgpu, [docker.home.name])

    def restart_containerd() -> None:
        with ways.none_of_them():
            docker.below.service.restart()

    ways = Ways()
    use(docker, built, ways, size.count)
    until_empty(mgpu)
    before = look()
    with ThreadPoolExecutor(size.at_once) as pool:
        work = [pool.submit(use, docker, built, ways, number) for number in range(size.count)]
        with_interruptions(work, docker.service.restart, restart_containerd)
    until(lambda: none_listed(docker), "dockerd lists no container", timeout_s=SETTLE_S)
    before.sockets[str(docker.home / "exec" / "libnetwork")] += 1
    nothing_left(look, before, docker.home / "dockerd.log")
