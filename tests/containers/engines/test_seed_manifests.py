"""The manifests that vendors publish, run as pods of a real containerd: only the image and its command are
ours.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from oci_specs import paths
from tests.cri.pods import PodSpec, pods
from tests.support import arbiter, cri
from tests.support.arbiter import Arbiter
from tests.support.colocation import BURST_REQUESTS, MS, NOISE_MS, came_back, mark, preempted, row, working
from tests.support.cri import Kubelet, Pod
from tests.support.places import REPOSITORY
from tests.support.routes import LOAD
from tests.support.waiting import until

MANIFESTS = REPOSITORY / "tests" / "cri" / "manifests"
MOUNTS: list[dict[str, Any]] = [
    {"host_path": paths.libexec("mgpu-load"), "container_path": LOAD, "readonly": True}
]
HOLD_MS = 100


def published(name: str) -> list[PodSpec]:
    return pods(yaml.safe_load(Path(MANIFESTS, f"{name}.yaml").read_text()))


@pytest.fixture
def node(kubelet: Kubelet) -> Iterator[Arbiter]:
    """A node of two cards, with mgpu's own defaults."""
    with arbiter.running() as mgpu:
        kubelet.point_at(mgpu.runtime)
        yield mgpu


def start(stack: ExitStack, kubelet: Kubelet, spec: PodSpec, handler: str, *command: str) -> Pod:
    pod = kubelet.run(cri.with_test_image(spec, *command), handler, mounts=MOUNTS)
    stack.callback(kubelet.remove, pod)
    return pod


def given(node: Arbiter, pod: Pod) -> dict[str, Any]:
    """What mgpud lists of a pod's container."""
    found = row(node, pod.container)
    assert found is not None
    return found


def by_card(node: Arbiter, running: list[Pod]) -> dict[int, list[int]]:
    """Pids of the pods' containers, each of which has one card and has run on it, by that card's index."""
    found: dict[int, list[int]] = {}
    for pod in running:
        [card] = given(node, pod)["cards"]
        found.setdefault(card["index"], []).append(working(node, pod.container, card["index"]))
    return found


@pytest.mark.parametrize("handler", [cri.BY_SHIM, cri.BY_BINARY])
def test_online_and_offline_deployments_share_the_cards(
    kubelet: Kubelet, node: Arbiter, handler: str
) -> None:
    saturate = (LOAD, "saturate", "--kernel-us", "2000", "--seconds", "60")
    burst = [LOAD, "burst", "--period-ms", "0", "--kernels", "2", "--kernel-us", "500"]
    burst += ["--requests", str(BURST_REQUESTS)]
    marks = [mark(node, card) for card in (0, 1)]
    with ExitStack() as stack:
        low = [start(stack, kubelet, one, handler, *saturate) for one in published("mgpu-offline")]
        for number, pod in enumerate(low):
            found = given(node, pod)
            assert (found["pod"], found["namespace"]) == (f"mgpu-deployment-offline-{number}", "default")
            assert (found["class"], found["policy"]) == ("offline", "guaranteed-burst-share")
            assert [(card["memory_mib"], card["core_percent"]) for card in found["cards"]] == [(4096, 30)]
            seen = json.loads(kubelet.execute(pod.container, "gpustat", "--json").out)["gpus"]
            assert [gpu["memory.total"] for gpu in seen] == [4096]
        offline = by_card(node, low)
        high = [start(stack, kubelet, one, handler, *burst) for one in published("mgpu-online")]
        for pod in high:
            found = given(node, pod)
            assert (found["class"], found["policy"]) == ("online", "guaranteed-burst-share")
        online = by_card(node, high)
        assert sorted(online) == [0, 1], "online is spread over the GPUs"
        until(lambda: all(row(node, pod.container) is None for pod in high), "online has ended")
        until(
            lambda: [kubelet.exit_code(pod.container) for pod in high] == [0, 0],
            "containerd knows that it ended well",
        )
        for card, pids in offline.items():
            spans = came_back(marks[card], online=online[card][0], offline=pids)
            off_ns, back_ns = preempted(spans, online=online[card][0], offline=pids, hold_ms=HOLD_MS)
            assert off_ns < NOISE_MS * MS
            assert HOLD_MS * MS <= back_ns < (HOLD_MS + NOISE_MS) * MS
        stats = kubelet.client.call("ContainerStats", container_id=low[0].container).stats
        assert stats.cpu.usage_core_nano_seconds.value > 0
    until(lambda: node.containers() == [] and node.used_bytes() == [0, 0], "everything is back")


def test_job_on_two_cards(kubelet: Kubelet, node: Arbiter) -> None:
    [spec] = published("ack-multigpu")
    with ExitStack() as stack:
        pod = start(stack, kubelet, spec, cri.BY_SHIM, "sleep", "60")
        seen = json.loads(kubelet.execute(pod.container, "gpustat", "--json").out)["gpus"]
        # 4309 MiB on each of two cards of 16160 MiB, as the page shows.
        assert [gpu["memory.total"] for gpu in seen] == [4309, 4309]
        assert kubelet.execute(pod.container, "pwd").out == "/root\n"
    until(lambda: node.containers() == [], "everything is back")
