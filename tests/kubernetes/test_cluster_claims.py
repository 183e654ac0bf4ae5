"""GPUs by claims (dynamic resource allocation), where the cluster has consumable capacity: the examples as
they are written, but for their image.
"""

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
import yaml

from tests.kubernetes.cluster import SYSTEM, Cluster, KubectlError, Object, until
from tests.support.places import REPOSITORY

pytestmark = pytest.mark.timeout(900)

FOLDER = REPOSITORY / "cluster" / "manifests" / "claims"
NODE_PROCESS = "daemonset/mgpu-node"
ARGS = "/spec/template/spec/containers/0/args"


@pytest.fixture(scope="module")
def by_claims(anywhere: Cluster) -> Iterator[Cluster]:
    """While its nodes offer claims in place of resources."""
    anywhere.run("apply", "-f", str(FOLDER / "deviceclasses.yaml"))
    args = anywhere.get(NODE_PROCESS, SYSTEM)["spec"]["template"]["spec"]["containers"][0]["args"]
    _start_with(anywhere, [*args, "--dra"])
    try:
        until(lambda: bool(_devices(anywhere)), "the node has devices", timeout_s=120)
        yield anywhere
    finally:
        _start_with(anywhere, args)
        _disown(anywhere)


def _start_with(cluster: Cluster, args: list[str]) -> None:
    patch = [{"op": "replace", "path": ARGS, "value": args}]
    cluster.run(SYSTEM, "patch", NODE_PROCESS, "--type=json", f"--patch={json.dumps(patch)}")
    cluster.run(SYSTEM, "rollout", "status", NODE_PROCESS, "--timeout=180s")


def _disown(cluster: Cluster) -> None:
    """Helm 4 does not change what kubectl-patch owns."""
    fields = cluster.get(NODE_PROCESS, SYSTEM, "--show-managed-fields")["metadata"]["managedFields"]
    number = [each["manager"] for each in fields].index("kubectl-patch")
    patch = [{"op": "remove", "path": f"/metadata/managedFields/{number}"}]
    cluster.run(SYSTEM, "patch", NODE_PROCESS, "--type=json", f"--patch={json.dumps(patch)}")


def _devices(cluster: Cluster) -> list[Object]:
    slices = cluster.get("resourceslices")["items"]
    found = [device for each in slices for device in each["spec"].get("devices", [])]
    return [device for device in found if device["name"].startswith(("gpu-", "mig-"))]


@contextmanager
def namespace(cluster: Cluster) -> Iterator[Cluster]:
    name = f"mgpu-test-{uuid.uuid4().hex[:8]}"
    cluster.run("create", "namespace", name)
    try:
        yield cluster.in_namespace(name)
    finally:
        cluster.run("delete", "namespace", name, "--wait=true")


@pytest.fixture
def claims(by_claims: Cluster) -> Iterator[Cluster]:
    """In a namespace of its own."""
    assert _devices(by_claims)[0].get("allowMultipleAllocations"), "this cluster has no consumable capacity"
    with namespace(by_claims) as made:
        yield made


def example(cluster: Cluster, name: str) -> list[Object]:
    """The objects of example-NAME.yaml, whose pods sleep in the suite's image."""
    objects: list[Object] = list(yaml.safe_load_all((FOLDER / f"example-{name}.yaml").read_text()))
    for pod in (each for each in objects if each["kind"] == "Pod"):
        pod["spec"]["terminationGracePeriodSeconds"] = 1
        for container in pod["spec"]["containers"]:
            container |= {"image": cluster.image, "imagePullPolicy": "IfNotPresent"}
            container["command"] = ["sleep", "infinity"]
    return objects


def _prepared(cluster: Cluster) -> list[str]:
    """The CDI specs of prepared claims on all nodes."""
    found = ("find", "/var/run/cdi/", "-name", "mgpu.dev-claim-*.json")
    return [path for node in cluster.nodes() for path in cluster.on_node(node, *found).split()]


def test_claim_of_a_template_is_a_cap_and_ends_with_its_pod(claims: Cluster) -> None:
    claims.apply(*example(claims, "memory"))
    claims.running("part-of-a-gpu")
    assert claims.totals_mib("part-of-a-gpu") == [4096]
    assert claims.allocates("part-of-a-gpu", 3800)
    assert not claims.allocates("part-of-a-gpu", 4097)
    claims.run("delete", "pod", "part-of-a-gpu", "--wait=true")
    until(lambda: not claims.get("resourceclaims")["items"], "its claim is gone")
    until(lambda: not _prepared(claims), "nothing is prepared")
    assert not claims.served("part-of-a-gpu")


def test_claims_of_two_namespaces_share_one_gpu_under_their_caps(by_claims: Cluster) -> None:
    # Those of several nodes are spread by their sums.
    with (
        by_claims.alone(by_claims.nodes()[0]),
        namespace(by_claims) as first,
        namespace(by_claims) as second,
    ):
        teams = {"team-a": (first, 6144), "team-b": (second, 8192)}
        for each in example(by_claims, "namespaces"):
            teams[each["metadata"].pop("namespace")][0].apply(each)
        for team, mib in teams.values():
            team.running("worker")
            assert team.totals_mib("worker") == [mib]
            assert team.allocates("worker", mib - 512)
            assert not team.allocates("worker", mib + 1)
        assert first.served("worker") == second.served("worker"), "on one GPU"
        assert [_class_of(team, "worker") for team in (first, second)] == ["online", "offline"]
    # With their namespaces.
    until(lambda: not _prepared(by_claims), "nothing is prepared")
    assert not first.served("worker")
    assert not second.served("worker")


def _class_of(cluster: Cluster, pod: str) -> str:
    [found] = [
        one for one in cluster.containers() if (one["namespace"], one["pod"]) == (cluster.namespace, pod)
    ]
    return str(found["class"])


def test_shared_claim_is_divided_between_its_containers(claims: Cluster) -> None:
    claims.apply(*example(claims, "shared"))
    claims.running("server-and-sidecar")
    for container in ("server", "sidecar"):
        assert claims.totals_mib("server-and-sidecar", container) == [4096]
        assert not claims.allocates("server-and-sidecar", 4097, container)


def test_claim_has_parts_of_two_gpus(claims: Cluster) -> None:
    claims.apply(*example(claims, "two-gpus"))
    claims.running("two-gpus")
    assert claims.totals_mib("two-gpus") == [2048, 2048]
    [cards] = claims.served("two-gpus").values()
    assert len(set(cards)) == 2


def test_whole_gpu_is_no_one_elses(claims: Cluster) -> None:
    claims.apply(*example(claims, "whole"))
    claims.running("whole-gpu")
    half = claims.totals_mib("whole-gpu", "server")
    assert half == claims.totals_mib("whole-gpu", "sidecar")
    [card] = {card for cards in claims.served("whole-gpu").values() for card in cards}
    parts = [_part(f"part-{i}", "1Gi") for i in range(3)]
    claims.apply(*parts, *(_pod(claims, each["metadata"]["name"]) for each in parts))
    claims.running(*(each["metadata"]["name"] for each in parts))
    others = claims.served(*(each["metadata"]["name"] for each in parts)).values()
    assert card not in {each for cards in others for each in cards}


def test_claim_waits_until_another_is_released(claims: Cluster) -> None:
    if claims.minor() < 35:
        pytest.skip("this kube-scheduler allocates nothing on another GPU once one is full")
    cards = claims.cards()
    # One on each GPU, and no second beside it.
    mib = max(card["memory_mib"] for card in cards) // 512 * 256 + 256
    fill = [f"fill-{i}" for i in range(len(cards))]
    claims.apply(*(_part(name, f"{mib}Mi") for name in fill), *(_pod(claims, name) for name in fill))
    claims.running(*fill)
    claims.apply(_part("one-more", f"{mib}Mi"), _pod(claims, "one-more"))
    until(lambda: bool(claims.unschedulable("one-more")), "the pod waits, and says why")
    assert claims.phase("one-more") == "Pending"
    claims.run("delete", f"pod/{fill[0]}", f"resourceclaim/{fill[0]}", "--wait=true")
    claims.running("one-more")
    assert claims.totals_mib("one-more") == [mib]


def test_forged_name_of_a_claim_gets_nothing(claims: Cluster) -> None:
    claims.apply(_part("mine", "2Gi"), _pod(claims, "mine"))
    claims.running("mine")
    environment = claims.run("exec", "mine", "--", "env").splitlines()
    [name] = [line for line in environment if line.startswith("MGPU_CLAIM_")]
    key, _, value = name.partition("=")
    forger = claims.pod("forger", runtimeClassName="mgpu")
    [container] = forger["spec"]["containers"]
    container["env"] = [{"name": key, "value": value}]
    with pytest.raises(KubectlError, match=key):
        claims.apply(forger)
    # Admission does not see what this brings.
    del container["env"]
    container["envFrom"] = [{"configMapRef": {"name": "forged"}}]
    forged = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "forged"}, "data": {key: value}}
    claims.apply(forged, forger)
    until(lambda: "is not reserved for the container's pod" in claims.events("forger"), "it is refused")
    assert not claims.served("forger")


def test_claim_that_is_deleted_while_prepared_serves_until_its_pod_ends(claims: Cluster) -> None:
    claims.apply(_part("user", "2Gi"), _pod(claims, "user"))
    claims.running("user")
    claims.run("delete", "resourceclaim", "user", "--wait=false")
    # As other controllers do by mistake: nothing keeps the object any more.
    with suppress(KubectlError):
        claims.run(
            "patch", "resourceclaim", "user", "--type=merge", '--patch={"metadata":{"finalizers":null}}'
        )
    until(lambda: "user" not in _names(claims, "resourceclaims"), "the claim is gone")
    assert claims.totals_mib("user") == [2048]
    assert not claims.allocates("user", 2049)
    claims.run("delete", "pod", "user", "--wait=true", "--timeout=120s")
    until(lambda: not claims.served("user"), "it is released")
    until(lambda: not _prepared(claims), "nothing is prepared")


@pytest.mark.parametrize("program", ["kubelet", "mgpu-node", "mgpud"])
def test_claims_outlive_what_is_killed_in_the_middle(claims: Cluster, program: str) -> None:
    claims.apply(_part("before", "2Gi"), _pod(claims, "before"))
    claims.running("before")
    node = claims.node_of("before")
    after = _pod(claims, "after")
    after["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    claims.apply(_part("after", "3Gi"), after)
    if program == "mgpud":
        claims.kill_mgpud(node)
    else:
        claims.kill(program, node)
    claims.running("after")
    assert claims.totals_mib("after") == [3072]
    assert claims.totals_mib("before") == [2048]
    assert claims.restarts("before") == 0
    for name in ("before", "after"):
        claims.run("delete", f"pod/{name}", f"resourceclaim/{name}", "--wait=true", "--timeout=120s")
    until(lambda: not _prepared(claims), "nothing is prepared")


def _names(cluster: Cluster, kind: str) -> list[str]:
    return [each["metadata"]["name"] for each in cluster.get(kind)["items"]]


def _part(name: str, memory: str) -> Object:
    """A claim for so much memory of any GPU."""
    exactly = {"deviceClassName": "gpu.mgpu.dev", "capacity": {"requests": {"memory": memory}}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }


def _pod(cluster: Cluster, claim: str) -> Object:
    """A pod of the claim's name that uses it."""
    pod = cluster.pod(
        claim, runtimeClassName="mgpu", resourceClaims=[{"name": "gpu", "resourceClaimName": claim}]
    )
    pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    return pod
