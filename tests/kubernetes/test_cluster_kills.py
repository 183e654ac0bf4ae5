"""Parts of mgpu killed under running pods."""

from __future__ import annotations

import pytest

from tests.kubernetes.cluster import Cluster
from tests.support.waiting import until

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(900)]

MEMORY = "mgpu.dev/memory-mib"


@pytest.mark.parametrize("program", ["mgpud", "mgpu-node", "mgpu-scheduler"])
def test_a_killed_part_is_followed_by_the_next_and_pods_go_on(cluster: Cluster, program: str) -> None:
    cluster.apply(cluster.pod("before", limits={MEMORY: "1024"}))
    cluster.running("before")
    cluster.on_node("pkill", "-KILL", "-f", f"/opt/mgpu/bin/{program}")
    until(lambda: cluster.totals_mib("before") == [1024], "its calls are answered")
    cluster.apply(cluster.pod("after", limits={MEMORY: "1024"}))
    cluster.running("after")
    assert cluster.totals_mib("after") == [1024]
    status = cluster.get("pod", "before")["status"]["containerStatuses"][0]
    assert status["restartCount"] == 0


def test_a_new_node_pod_leaves_running_pods_alone(cluster: Cluster) -> None:
    cluster.apply(cluster.pod("goes-on", limits={MEMORY: "1024"}))
    cluster.running("goes-on")
    cluster.run("--namespace=mgpu-system", "delete", "pod", "-l", "app.kubernetes.io/component=node")
    cluster.run("--namespace=mgpu-system", "rollout", "status", "daemonset/mgpu-node", "--timeout=120s")
    assert cluster.totals_mib("goes-on") == [1024]
    cluster.apply(cluster.pod("next", limits={MEMORY: "1024"}))
    cluster.running("next")
