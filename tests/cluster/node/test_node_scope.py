"""What the token of a node's process may change, by the API server's own evaluator: that node's part."""

import copy
from typing import Any

import pytest
import yaml

from cluster.node.published import SERVING
from cluster.resources.inventory import ANNOTATION
from tests.cluster import evaluator
from tests.cluster.manifest_files import FOLDER, NODE, documents
from tools.debian_archive import Unavailable

Object = dict[str, Any]

# The evaluator is built from its sources, once.
pytestmark = pytest.mark.timeout(1200)

ACCOUNT = "system:serviceaccount:mgpu-system:mgpu-node"
ON = "authentication.kubernetes.io/node-name"
# The first with this policy, and the one that the manifests are written for.
KUBERNETES = ("1.30", "1.36")


def outcome(
    version: str,
    object_: Object | None,
    old: Object | None = None,
    *,
    subresource: str = "",
    name: str = ACCOUNT,
    node: str | None = "a",
) -> str:
    """The refusal's line; empty where the change is let through."""
    user: Object = {"Name": name}
    if node is not None:
        user["Extra"] = {ON: [node]}
    asked = {"object": object_, "old": old, "subresource": subresource, "user": user}
    try:
        [found] = evaluator.review(documents(FOLDER / "node-scope.yaml"), [asked], version)
    except Unavailable as why:
        pytest.skip(str(why))
    assert "error" not in found, found
    return str(found.get("refused", ""))


def a_node(name: str = "a", **metadata: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"zone": "1", "role": ""},
            "annotations": {"x": "y"},
            **metadata,
        },
        "spec": {"podCIDR": "10.0.0.0/24"},
        "status": {"capacity": {"cpu": "8"}},
    }


def a_slice(node: str = "a", driver: str = "mgpu.dev") -> Object:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        },
    }


def an_event(instance: str = "a", controller: str = "mgpu.dev/node") -> Object:
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "team-a"},
        "reportingController": controller,
        "reportingInstance": instance,
    }


def published(node: Object) -> Object:
    made = copy.deepcopy(node)
    made["metadata"]["labels"][SERVING] = "true"
    made["metadata"]["annotations"][ANNOTATION] = "[]"
    made["status"]["capacity"]["mgpu.dev/memory-mib"] = "16160"
    return made


@pytest.mark.parametrize("version", KUBERNETES)
def test_node_process_publishes_and_withdraws_its_own(version: str) -> None:
    bare, full = a_node(), published(a_node())
    assert outcome(version, full, bare, subresource="status") == ""
    assert outcome(version, bare, full, subresource="status") == ""
    assert outcome(version, a_slice()) == ""
    assert outcome(version, a_slice(), a_slice()) == ""
    assert outcome(version, None, a_slice()) == ""
    assert outcome(version, an_event()) == ""


@pytest.mark.parametrize("version", KUBERNETES)
def test_node_process_changes_no_other_node(version: str) -> None:
    bare, full = a_node("b"), published(a_node("b"))
    for subresource in ("", "status"):
        assert "changes no other node" in outcome(version, full, bare, subresource=subresource)
    assert "on that node alone" in outcome(version, a_slice("b"))
    assert "on that node alone" in outcome(version, None, a_slice("b"))
    assert "on that node alone" in outcome(version, a_slice("a"), a_slice("b"))
    assert "in its own name alone" in outcome(version, an_event("b"))


@pytest.mark.parametrize("version", KUBERNETES)
def test_of_its_own_node_it_changes_mgpus_part_alone(version: str) -> None:
    bare = a_node()
    changes: list[Object] = [
        {"labels": {"zone": "2", "role": ""}},
        {"labels": {"zone": "1"}},
        {"labels": {"zone": "1", "role": "", "node-restriction.kubernetes.io/x": "1"}},
        {"annotations": {}},
        {"annotations": {"x": "y", "volumes.kubernetes.io/controller-managed-attach-detach": "false"}},
    ]
    for change in changes:
        assert "alone" in outcome(version, a_node(**change), bare, subresource="status"), change
    tainted = a_node()
    tainted["spec"]["taints"] = [{"key": "k", "effect": "NoSchedule"}]
    assert "alone" in outcome(version, tainted, bare)
    assert "on that node alone" in outcome(version, a_slice(driver="gpu.nvidia.com"))
    assert "in its own name alone" in outcome(version, an_event(controller="kubelet"))


@pytest.mark.parametrize("version", KUBERNETES)
def test_token_of_no_pod_changes_nothing(version: str) -> None:
    assert "bound to no pod" in outcome(
        version, published(a_node()), a_node(), subresource="status", node=None
    )
    assert "bound to no pod" in outcome(version, a_slice(""), node=None)


@pytest.mark.parametrize("version", KUBERNETES)
def test_others_are_not_judged(version: str) -> None:
    for name in ("system:node:b", "system:serviceaccount:team-a:mgpu-node"):
        assert outcome(version, published(a_node("b")), a_node("b"), subresource="status", name=name) == ""


def test_whatever_it_may_write_is_judged() -> None:
    """Each right of the role that changes something is in the policy's rules."""
    [role] = [each for each in documents(NODE) if each["kind"] == "ClusterRole"]
    [policy] = [
        each for each in documents(FOLDER / "node-scope.yaml") if not each["kind"].endswith("Binding")
    ]
    judged = {
        (group, resource)
        for rule in policy["spec"]["matchConstraints"]["resourceRules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    for rule in role["rules"]:
        if not set(rule["verbs"]) <= {"get", "list", "watch"}:
            assert {(group, each) for group in rule["apiGroups"] for each in rule["resources"]} <= judged
    assert yaml.safe_dump(policy).count(ACCOUNT) == 1
