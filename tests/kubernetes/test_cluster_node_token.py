"""The token of a node's process, as the API server reads it: that node's part of the cluster, and no more."""

import base64
import json
import ssl
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.kubernetes.cluster import Cluster, Object

pytestmark = pytest.mark.timeout(300)

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"


@dataclass(frozen=True)
class Process:
    """A node's, by its token. other: a node that it is not on."""

    server: str
    authorities: str
    token: str
    node: str
    other: str

    def ask(self, method: str, path: str, body: Object | None = None, *, of: str = "json") -> str:
        """The API server's refusal in one line; empty where it lets this through, which it then forgets."""
        request = urllib.request.Request(
            f"{self.server}{path}?dryRun=All",
            json.dumps(body).encode() if body else None,
            {"Authorization": f"Bearer {self.token}", "Content-Type": f"application/{of}"},
            method=method,
        )
        try:
            urllib.request.urlopen(
                request, timeout=30, context=ssl.create_default_context(cadata=self.authorities)
            ).close()
        except urllib.error.HTTPError as error:
            with error:
                said = str(json.loads(error.read())["message"])
            assert len(said.splitlines()) == 1
            return said
        return ""

    def patch(self, node: str, change: Object, *, part: str = "/status") -> str:
        return self.ask("PATCH", f"/api/v1/nodes/{node}{part}", change, of="merge-patch+json")


def token(anywhere: Cluster, *bound: str) -> str:
    return anywhere.in_namespace("mgpu-system").run("create", "token", "mgpu-node", *bound).strip()


@pytest.fixture
def process(anywhere: Cluster) -> Iterator[Process]:
    """The token is bound to the node process's pod, as the one that kubelet mounts there."""
    config = json.loads(anywhere.run("config", "view", "--minify", "--flatten", "--raw", "-o", "json"))
    api = config["clusters"][0]["cluster"]
    component = "app.kubernetes.io/name=mgpu,app.kubernetes.io/component=node"
    pod = anywhere.in_namespace("mgpu-system").get("pod", "-l", component)["items"][0]
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    bound = ("--bound-object-kind=Pod", f"--bound-object-name={name}", f"--bound-object-uid={uid}")
    other = f"mgpu-test-{uuid.uuid4().hex[:8]}"
    anywhere.apply(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": other}}, a_slice(other, name=other)
    )
    try:
        yield Process(
            api["server"],
            base64.b64decode(api["certificate-authority-data"]).decode(),
            token(anywhere, *bound),
            pod["spec"]["nodeName"],
            other,
        )
    finally:
        anywhere.run("delete", "node,resourceslice", other, "--ignore-not-found")


def a_slice(node: str, driver: str = "mgpu.dev", name: str = "mgpu-test-tried") -> Object:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": f"{node}-tried", "generation": 1, "resourceSliceCount": 1},
            "devices": [],
        },
    }


def an_event(node: str) -> Object:
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "mgpu-test-tried", "namespace": "default"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "mgpu.dev/node",
        "reportingInstance": node,
        "action": "Tried",
        "reason": "Tried",
        "type": "Normal",
        "regarding": {"kind": "Pod", "name": "any", "namespace": "default"},
    }


def noted(kind: str, key: str, value: Any) -> Object:
    return {"metadata": {kind: {key: value}}}


PUBLISHED = (
    noted("labels", "mgpu.dev/serving", "tried"),
    noted("annotations", "mgpu.dev/inventory", "[]"),
    {"status": {"capacity": {"mgpu.dev/memory-mib": "1"}}},
)


def test_process_publishes_what_its_node_has(process: Process) -> None:
    for change in PUBLISHED:
        assert process.patch(process.node, change) == ""
    assert process.ask("POST", SLICES, a_slice(process.node)) == ""
    assert process.ask("POST", EVENTS, an_event(process.node)) == ""


def test_process_changes_no_other_node(process: Process) -> None:
    for change in PUBLISHED:
        assert f"on node {process.node} changes no other node" in process.patch(process.other, change)
    assert "on that node alone" in process.ask("POST", SLICES, a_slice(process.other))
    assert "on that node alone" in process.ask("DELETE", f"{SLICES}/{process.other}")
    assert "in its own name alone" in process.ask("POST", EVENTS, an_event(process.other))


def test_process_changes_mgpus_part_of_its_node_alone(process: Process) -> None:
    for change in (noted("labels", "tried", "1"), noted("annotations", "tried", "1")):
        assert "mgpu-node changes the label" in process.patch(process.node, change)
    assert "slices of mgpu.dev on that node alone" in process.ask(
        "POST", SLICES, a_slice(process.node, "gpu.nvidia.com")
    )
    assert 'cannot patch resource "nodes"' in process.patch(
        process.node, {"spec": {"unschedulable": True}}, part=""
    )


def test_token_of_no_pod_publishes_nothing(process: Process, anywhere: Cluster) -> None:
    unbound = replace(process, token=token(anywhere))
    for change in PUBLISHED:
        assert "is bound to no pod" in unbound.patch(process.node, change)
    assert "is bound to no pod" in unbound.ask("POST", SLICES, a_slice(process.node))
    assert "is bound to no pod" in unbound.ask("POST", EVENTS, an_event(process.node))
