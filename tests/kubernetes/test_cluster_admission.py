"""The webhook as the API server asks it: its certificates, and what is made while it is away."""

import base64
import json
import time
from collections.abc import Iterator

import pytest

from tests.kubernetes.cluster import SYSTEM, Cluster, KubectlError, until

pytestmark = pytest.mark.timeout(600)

MEMORY = "mgpu.dev/memory-mib"
SECRET = ("secret", "mgpu-admission", SYSTEM)
CONFIGURATIONS = ("mutatingwebhookconfiguration", "validatingwebhookconfiguration")
# Between two looks of a replica at the Secret.
EACH_S = 60
DEPLOYMENT = "deployment/mgpu-admission"


def _bundles(cluster: Cluster) -> set[str]:
    """The authorities by which the API server knows the webhook."""
    return {
        base64.b64decode(webhook["clientConfig"].get("caBundle", "")).decode()
        for kind in CONFIGURATIONS
        for webhook in cluster.get(kind, "mgpu")["webhooks"]
    }


def _asks(cluster: Cluster) -> str:
    """ "" where a pod that asks would be made with what admission adds; else the API server's refusal."""
    text = json.dumps(cluster.pod("asks", limits={MEMORY: "1024"}))
    try:
        made = json.loads(cluster.run("apply", "--dry-run=server", "-o", "json", "-f", "-", stdin=text))
    except KubectlError as refused:
        return str(refused)
    assert made["spec"]["schedulerName"] == "mgpu-scheduler"
    assert made["spec"]["runtimeClassName"] == "mgpu"
    return ""


def test_new_authority_follows_a_lost_one(cluster: Cluster) -> None:
    """The Secret is deleted, as by mistake. Replicas look each minute, and until both have seen it the
    earlier authority is trusted too: pods are admitted all the while.
    """
    [before] = _bundles(cluster)
    cluster.run("delete", *SECRET)
    said: list[str] = []

    def are_both_told() -> bool:
        said.append(_asks(cluster))
        bundles = _bundles(cluster)
        return len(bundles) == 1 and before not in bundles

    until(are_both_told, "another authority is in both configurations")
    ends = time.monotonic() + EACH_S
    while time.monotonic() < ends:
        said.append(_asks(cluster))
    assert set(said) == {""}, said
    cluster.run(SYSTEM, "rollout", "restart", DEPLOYMENT)
    cluster.run(SYSTEM, "rollout", "status", DEPLOYMENT, "--timeout=300s")
    assert _asks(cluster) == ""


@pytest.fixture
def without_webhook(cluster: Cluster) -> Iterator[Cluster]:
    replicas = cluster.get(DEPLOYMENT, SYSTEM)["spec"]["replicas"]
    cluster.run(SYSTEM, "scale", DEPLOYMENT, "--replicas=0")
    try:
        yield cluster
    finally:
        cluster.run(SYSTEM, "scale", DEPLOYMENT, f"--replicas={replicas}")
        cluster.run(SYSTEM, "rollout", "status", DEPLOYMENT, "--timeout=300s")


def test_pods_that_ask_are_refused_while_it_is_away_and_others_made(without_webhook: Cluster) -> None:
    until(lambda: "pods.mgpu.dev" in _asks(without_webhook), "a pod that asks is refused")
    without_webhook.apply(without_webhook.pod("plain"))
    without_webhook.running("plain")


def test_killed_replicas_are_followed_by_the_next(cluster: Cluster) -> None:
    cluster.kill("mgpu-admission")
    until(lambda: _asks(cluster) == "", "pods that ask are made")
