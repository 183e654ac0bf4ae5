"""Pods on CRI-O, where there is one: what they ask for, what becomes of them, and its words for a refusal."""

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.cri.client import CallError, code
from tests.refusals import NODE_REFUSALS, REFUSALS, RefusalCase
from tests.support import arbiter, cri, crio
from tests.support.arbiter import Arbiter
from tests.support.colocation import row
from tests.support.cri import Kubelet
from tests.support.lasting import lasting_mgpu
from tests.support.processes import others_here
from tests.support.waiting import until

MEMORY = {"mgpu.dev/memory-mib": "512"}
VIEW = ("gpustat", "--no-header")


lasting, emptied = lasting_mgpu()


@pytest.fixture
def mgpu(emptied: Arbiter, on_crio: Kubelet) -> Arbiter:
    on_crio.point_at(emptied.runtime)
    return emptied


def sleeping(kubelet: Kubelet) -> cri.Pod:
    return kubelet.run(cri.pod_of("sleep", "600", annotations=MEMORY), crio.HANDLER)


def test_pods_annotations_count_for_its_containers(on_crio: Kubelet, mgpu: Arbiter) -> None:
    spec = replace(cri.pod_of("sleep", "600"), annotations=MEMORY)
    pod = on_crio.run(spec, crio.HANDLER)
    assert row(mgpu, pod.container) is not None, "mgpud lists it under another name"
    assert "/   512 MB" in on_crio.execute(pod.container, *VIEW).out
    on_crio.remove(pod)


def ended(kubelet: Kubelet) -> None:
    kubelet.restart()


def killed(kubelet: Kubelet) -> None:
    kubelet.service.process.kill()
    kubelet.service.process.wait()
    kubelet.restart()


@pytest.mark.parametrize("away", [ended, killed])
def test_pod_outlives_its_engine(on_crio: Kubelet, mgpu: Arbiter, away: Callable[[Kubelet], None]) -> None:
    pod = sleeping(on_crio)
    away(on_crio)
    assert on_crio.exit_code(pod.container) is None
    assert "/   512 MB" in on_crio.execute(pod.container, *VIEW).out
    on_crio.remove(pod)


def test_killed_container_gives_everything_back(on_crio: Kubelet, mgpu: Arbiter) -> None:
    pod = sleeping(on_crio)
    os.kill(mgpu.containers()[0]["pid"], signal.SIGKILL)
    until(lambda: on_crio.exit_code(pod.container) == 128 + signal.SIGKILL, "CRI-O has seen it")
    arbiter.until_empty(mgpu)
    on_crio.remove(pod)


def test_killed_monitor_leaves_a_grant_until_the_pod_goes(on_crio: Kubelet, mgpu: Arbiter) -> None:
    pod = sleeping(on_crio)
    for pid in monitors(pod.container):
        os.kill(pid, signal.SIGKILL)
    assert "/   512 MB" in on_crio.execute(pod.container, *VIEW).out
    on_crio.remove(pod)


def monitors(container: str) -> Iterator[int]:
    """Pids of the conmon of a container."""
    for pid in others_here():
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().split(b"\0")
        if words[0].endswith(b"conmon") and container.encode() in words:
            yield pid


def test_pod_without_the_hosts_users_has_its_share(on_crio: Kubelet, mgpu: Arbiter) -> None:
    on_crio.home.chmod(0o711)
    pod = on_crio.run(
        replace(cri.pod_of("sleep", "600", annotations=MEMORY), host_users=False), crio.HANDLER
    )
    mapped = on_crio.execute(pod.container, "cat", "/proc/self/uid_map").out.split()
    assert mapped == ["0", str(cri.FIRST_ID), str(cri.IDS)]
    assert "/   512 MB" in on_crio.execute(pod.container, *VIEW).out
    on_crio.remove(pod)


@pytest.mark.parametrize("case", [*REFUSALS, *NODE_REFUSALS], ids=lambda case: case.id)
def test_refusals(on_crio: Kubelet, mgpu: Arbiter, case: RefusalCase) -> None:
    asking = replace(cri.pod_of("true", annotations=case.annotations).containers[0], env=case.env)
    spec = replace(cri.pod_of("true"), containers=(asking,))
    with pytest.raises(CallError) as refused:
        on_crio.run(spec, crio.HANDLER)
    assert code(refused.value) == "UNKNOWN"
    assert refused.value.details() == f"container create failed: {case.line}\n"
    assert mgpu.containers() == []
