"""From allocated claims to what mgpud is told of them, and every refusal on the way."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.dra import allocation, devices
from cluster.dra.cdi_files import CdiFiles
from cluster.dra.prepared import claims_of
from cluster.resources.inventory import Card
from oci_specs import schemas
from oci_specs.claim import Claim, ClaimedCard, Pod
from oci_specs.refusal import Refusal
from tests.cluster.dra_support import allocated, consumed, parameters

CARDS = {
    devices.name(f"GPU-{index}"): Card(
        index=index, uuid=f"GPU-{index}", minor=index, model="V100", memory_mib=16160, healthy=index != 2
    )
    for index in range(3)
}
PODS = {"web-0": "pod-uid"}


def read(claim: dict[str, Any]) -> Claim:
    found, _ = allocation.read(claim, claim["metadata"]["uid"], "n1", CARDS)
    schemas.validate("claim", found.to_json())
    assert Claim.from_json(found.to_json()) == found
    return found


def test_consumed_capacity_is_what_the_containers_may_have() -> None:
    claim = allocated("c", [consumed("gpu-0", "4Gi", "30", "2")], pods=PODS)
    found, devices_of_it = allocation.read(claim, "uid-of-c", "n1", CARDS)
    assert found.pods == (Pod(name="web-0", uid="pod-uid"),)
    [request] = found.requests
    assert (request.name, request.qos, request.policy, request.containers) == ("gpu", "online", None, 2)
    assert request.cards == (ClaimedCard(uuid="GPU-0", memory_mib=4096, core_percent=30),)
    assert devices_of_it == [allocation.Allocated("gpu", "n1", "gpu-0", "share-of-gpu-0")]


@pytest.mark.parametrize(
    "result",
    [{"device": "gpu-1"}, consumed("gpu-1", "16160Mi"), consumed("gpu-1", "16160Mi", "100")],
    ids=["no capacity is consumed", "all memory", "all of both"],
)
def test_all_of_a_card_is_the_whole_card(result: dict[str, Any]) -> None:
    [request] = read(allocated("c", [result], pods=PODS)).requests
    assert request.cards == (ClaimedCard(uuid="GPU-1"),)


def test_several_cards_and_requests() -> None:
    results = [
        consumed("gpu-1", "2Gi", request="big"),
        consumed("gpu-0", "3Gi", request="big"),
        consumed("gpu-0", "1Gi", request="any/small"),
        {"request": "nic", "driver": "net.example.com", "pool": "x", "device": "eth0"},
    ]
    first, second = read(allocated("c", results, pods=PODS)).requests
    assert (first.name, [each.uuid for each in first.cards]) == ("any", ["GPU-0"])
    assert (second.name, [each.memory_mib for each in second.cards]) == ("big", [2048, 3072])


def test_parameters_of_a_claim_win_over_its_class_member_by_member() -> None:
    config = [
        parameters("FromClaim", ["gpu"], policy="guaranteed-burst-share"),
        parameters("FromClaim", ["other"], policy="native-burst-share"),
        parameters("FromClass", **{"class": "offline", "policy": "fixed-share"}),
        {"source": "FromClass", "opaque": {"driver": "net.example.com", "parameters": "theirs"}},
    ]
    [request] = read(allocated("c", [consumed("gpu-0", "1Gi")], pods=PODS, config=config)).requests
    assert (request.qos, request.policy) == ("offline", "guaranteed-burst-share")


def test_parameters_of_a_subrequest_are_its_own() -> None:
    config = [parameters(requests=["any/small"], **{"class": "offline"}), parameters(requests=["any/big"])]
    results = [consumed("gpu-0", "1Gi", request="any/small")]
    [request] = read(allocated("c", results, pods=PODS, config=config)).requests
    assert request.qos == "offline"


@pytest.mark.parametrize("result", [{"device": "gpu-0"}, consumed("gpu-0", "16160Mi")])
def test_whole_card_may_be_for_several_containers(result: dict[str, Any]) -> None:
    [request] = read(allocated("c", [result], pods=PODS, config=[parameters(containers=2)])).requests
    assert request.containers == 2
    assert request.cards == (ClaimedCard(uuid="GPU-0"),)


def test_consumers_that_are_no_pods_are_none_to_mgpud() -> None:
    claim = allocated("c", [consumed("gpu-0", "1Gi")], pods={})
    claim["status"]["reservedFor"] = [
        {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "x", "uid": "u"}
    ]
    assert read(claim).pods == ()


@pytest.mark.parametrize(
    ("results", "config", "why"),
    [
        ([], [], "nothing of mgpu.dev is allocated"),
        ([{"device": "gpu-7"}], [], "device n1/gpu-7 is no GPU of this node"),
        ([{"device": "gpu-0", "pool": "n2"}], [], "device n2/gpu-0 is no GPU of this node"),
        ([{"device": "gpu-2"}], [], "GPU GPU-2 is lost"),
        ([{"device": "gpu-0", "adminAccess": True}], [], "administrative access is not offered"),
        ([consumed("gpu-0", "512Mi", "0", "3")], [], "512 MiB and core 0 are too little for 3 containers"),
        ([consumed("gpu-0", "4Gi", "1", "2")], [], "too little for 2 containers"),
        (
            [consumed("gpu-0", "4Gi")],
            [parameters(containers=2)],
            "say 2 containers, and it consumes 1 of that capacity",
        ),
        ([{"device": "gpu-0"}], [parameters(quota=1)], "'quota' was unexpected"),
        (
            [{"device": "gpu-0"}],
            [parameters(requests=["other"], policy="fs")],
            "$.policy: 'fs' is not one of",
        ),
        ([{"device": "gpu-0"}], [parameters(kind="Gpu")], "$.kind"),
        (
            [{"device": "gpu-0"}],
            [{"source": "FromClaim", "opaque": {"driver": "mgpu.dev"}}],
            "None is not of",
        ),
    ],
)
def test_impossible_allocation_is_refused_in_a_line(
    results: list[dict[str, Any]], config: list[dict[str, Any]], why: str
) -> None:
    with pytest.raises(Refusal) as refused:
        read(allocated("c", results, pods=PODS, config=config))
    line = refused.value.line()
    assert why in line
    assert "\n" not in line


def test_claim_of_the_same_name_is_another() -> None:
    with pytest.raises(Refusal, match="it was deleted, and another has its name"):
        allocation.read(allocated("c", [{"device": "gpu-0"}], pods=PODS), "an-older-uid", "n1", CARDS)


ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=8)
    | st.sampled_from(["0", "1e99", "4Gi", "-1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=4,
)


@given(st.data())
def test_any_claim_is_read_or_refused(data: st.DataObject) -> None:
    """What is read can be sent to mgpud, whose schema has the last word."""
    config = [parameters(policy="fixed-share")]
    claim: Any = allocated("c", [consumed("gpu-0", "4Gi", "30", "2")], pods=PODS, config=config)
    at = claim
    while isinstance(at, dict | list) and at:
        key = data.draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
        if not isinstance(at[key], dict | list) or data.draw(st.booleans()):
            at[key] = data.draw(ODD)
            break
        at = at[key]
    try:
        found, _ = allocation.read(claim, "uid-of-c", "n1", CARDS)
    except (Refusal, *allocation.MALFORMED):
        return
    assert json.loads(json.dumps(found.to_json())) == found.to_json()


def test_claims_of_a_pod_are_those_that_it_names_and_those_made_for_it() -> None:
    pod = {
        "spec": {"resourceClaims": [{"name": "a", "resourceClaimName": "shared"}, {"name": "b"}]},
        "status": {"resourceClaimStatuses": [{"name": "b", "resourceClaimName": "p-b-x7"}, {"name": "c"}]},
    }
    assert claims_of(pod) == {"shared", "p-b-x7"}
    assert claims_of({}) == set()


def test_cdi_spec_is_of_a_version_in_which_names_may_begin_with_a_digit(tmp_path: Path) -> None:
    """CDI's SPEC.md: they may from 0.5.0 on, and of a spec of an older version engines take no device."""
    claim = read(
        allocated("c", [consumed("gpu-0", "4Gi")], pods=PODS, uid="8009ca13-ce96-44af-b9ff-ff4289428588")
    )
    [device] = CdiFiles(tmp_path).write(claim).values()
    assert device.partition("=")[2][0].isdigit()
    [spec] = [json.loads(path.read_text()) for path in tmp_path.iterdir()]
    assert tuple(map(int, spec["cdiVersion"].split("."))) >= (0, 5, 0)
