"""The cluster that the environment names: see docs/testing.md."""

import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.kubernetes.cluster import Cluster


@pytest.fixture(scope="session")
def anywhere() -> Cluster:
    found = Cluster.given()
    assert found, "set KUBECONFIG, and MGPU_NODE to what runs a program on a node, as MGPU_NODE='ssh {}'"
    return found


@pytest.fixture
def cluster(anywhere: Cluster) -> Iterator[Cluster]:
    """In a namespace of its own, which goes with all that is in it."""
    name = f"mgpu-test-{uuid.uuid4().hex[:8]}"
    anywhere.run("create", "namespace", name)
    try:
        yield replace(anywhere, namespace=name)
    finally:
        anywhere.run("delete", "namespace", name, "--wait=true")
