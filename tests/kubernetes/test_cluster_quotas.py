"""The examples for quotas, by the API server's own plugins beside mgpu's admission."""

from typing import Any

import pytest
import yaml

from tests.kubernetes.cluster import Cluster, KubectlError, until
from tests.support.places import REPOSITORY

pytestmark = pytest.mark.timeout(300)

FOLDER = REPOSITORY / "cluster" / "manifests" / "beside"
BLOCKS = "mgpu.dev/memory-64mib"


def example(name: str, cluster: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text())
    found["metadata"]["namespace"] = cluster.namespace
    return found


def limits(cluster: Cluster, pod: str) -> dict[str, str]:
    found: dict[str, str] = cluster.get("pod", pod)["spec"]["containers"][0]["resources"]["limits"]
    return found


def test_quota_counts_memory_under_every_name(cluster: Cluster) -> None:
    """512 blocks: two pods have 250 each."""
    cluster.apply(example("quota.yaml", cluster))
    until(lambda: "hard" in cluster.get("resourcequota", "gpus").get("status", {}), "the quota is counted")
    for name, resource in (("one", "vke.volcengine.com/mgpu-memory"), ("two", "mgpu.dev/memory-mib")):
        cluster.apply(cluster.pod(name, limits={resource: "16000"}))
    with pytest.raises(KubectlError, match=f"exceeded quota.*{BLOCKS}=16"):
        cluster.apply(cluster.pod("three", limits={"mgpu.dev/memory-mib": "1000"}))
    cluster.apply(cluster.pod("none"))


def test_default_of_a_namespace_is_a_part_of_a_gpu(cluster: Cluster) -> None:
    cluster.apply(example("limit-range.yaml", cluster))
    cluster.apply(cluster.pod("default"), cluster.pod("own", limits={"mgpu.dev/memory-mib": "4096"}))
    assert (limits(cluster, "default")[BLOCKS], limits(cluster, "own")[BLOCKS]) == ("32", "64")
    with pytest.raises(KubectlError, match="usage per Container is 8192"):
        cluster.apply(cluster.pod("large", limits={"mgpu.dev/memory-mib": "9000"}))
    with pytest.raises(KubectlError, match="disagree"):
        cluster.apply(cluster.pod("other", annotations={"mgpu.dev/memory-mib": "4000"}))
