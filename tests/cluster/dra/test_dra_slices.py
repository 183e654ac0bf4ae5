"""What a node offers by ResourceSlices, against the API's published schema and its rules."""

import copy
import json
from fractions import Fraction
from typing import Any

import kubernetes_validate
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.api import quantity
from cluster.dra import slices
from cluster.dra.devices import Kept, as_kept, device, name
from cluster.resources.inventory import Card, Inventory, Rules

NODE = {"metadata": {"name": "n1", "uid": "node-uid"}}
RULES = Rules(policy="fixed-share", placement="default", max_containers_per_card=16)


def card(index: int, **members: Any) -> Card:
    of = {
        "uuid": f"GPU-{index:08x}-1111-2222-3333-444455556666",
        "minor": index,
        "model": "Tesla V100-SXM2-16GB",
    }
    return Card(**{"index": index, "memory_mib": 16160, "architecture": "volta", **of, **members})


def built(*cards: Card, kept: Kept | None = None, serving: bool = True) -> list[dict[str, Any]]:
    offered = slices.devices(Inventory(rules=RULES, cards=cards), "580.65.06", serving, kept or Kept())
    return slices.built(NODE, offered, 7)


def validated(value: dict[str, Any]) -> None:
    """By the published schema of 1.36."""
    whole = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", **value}
    kubernetes_validate.validate(whole, "1.36", strict=True)


def test_card_has_its_attributes_and_amounts_that_can_be_shared() -> None:
    [one] = built(card(0, policy="fixed-share"))
    validated(one)
    assert one["spec"]["pool"] == {"name": "n1", "generation": 7, "resourceSliceCount": 1}
    assert one["metadata"]["ownerReferences"][0]["uid"] == "node-uid"
    [found] = one["spec"]["devices"]
    assert found["name"] == "gpu-00000000-1111-2222-3333-444455556666"
    assert found["attributes"] == {
        "uuid": {"string": "GPU-00000000-1111-2222-3333-444455556666"},
        "model": {"string": "Tesla V100-SXM2-16GB"},
        "architecture": {"string": "volta"},
        "type": {"string": "gpu"},
        "policy": {"string": "fixed-share"},
        "index": {"int": 0},
        "minor": {"int": 0},
        "driverVersion": {"version": "580.65.6"},
    }
    assert found["allowMultipleAllocations"] is True
    assert found["capacity"]["memory"] == {
        "value": "16160Mi",
        "requestPolicy": {
            "default": "16160Mi",
            "validRange": {"min": "256Mi", "max": "16160Mi", "step": "1Mi"},
        },
    }
    assert found["capacity"]["core"]["requestPolicy"]["default"] == "0"
    assert found["capacity"]["containers"]["value"] == "16"


@pytest.mark.parametrize("containers", [1, 2, 16])
@pytest.mark.parametrize("memory_mib", [256, 257, 16160, 183359])
def test_request_policies_are_what_the_api_takes(containers: int, memory_mib: int) -> None:
    """The rules of k8s.io/kubernetes pkg/apis/resource/validation, in words in the type's own
    documentation.
    """
    found = device(card(0, memory_mib=memory_mib), containers, "580", True, Kept())
    assert found is not None
    for capacity in found["capacity"].values():
        value, policy = quantity.read(capacity["value"]), capacity["requestPolicy"]
        default = quantity.read(policy["default"])
        if "validValues" in policy:
            assert default in map(quantity.read, policy["validValues"])
            continue
        least, most, step = (quantity.read(policy["validRange"][each]) for each in ("min", "max", "step"))
        assert 0 <= least <= default <= most <= value
        assert least + step <= value
        assert (default - least) % step == (most - least) % step == 0


def test_mig_instances_are_devices_and_their_gpu_is_told() -> None:
    instance = "MIG-0b5bd1a3-5a4a-5b0c-9f6a-2b7f9b1a9d11"
    [one] = built(
        card(0, uuid=instance, mig=True, minor=3), card(1, uuid="MIG-GPU-3c9c/7/0", mig=True, minor=3)
    )
    validated(one)
    first, second = one["spec"]["devices"]
    assert (first["name"], second["name"]) == (instance.lower(), "mig-gpu-3c9c-7-0")
    assert first["attributes"]["type"] == {"string": "mig"}
    assert first["attributes"]["minor"] == second["attributes"]["minor"] == {"int": 3}


def test_more_devices_than_a_slice_takes_are_in_several() -> None:
    found = built(*(card(index) for index in range(65)))
    assert [len(each["spec"]["devices"]) for each in found] == [64, 1]
    assert {each["spec"]["pool"]["resourceSliceCount"] for each in found} == {2}
    assert len({each["metadata"]["name"] for each in found}) == 2
    assert built() == []


def test_lost_card_is_tainted_or_left_out() -> None:
    [one] = built(card(0, healthy=False), card(1))
    validated(one)
    assert [each.get("taints") for each in one["spec"]["devices"]] == [
        [{"key": "mgpu.dev/lost", "effect": "NoExecute"}],
        None,
    ]
    [without] = built(card(0, healthy=False), card(1), kept=Kept(taints=False))
    assert [each["attributes"]["index"] for each in without["spec"]["devices"]] == [{"int": 1}]


def test_drained_card_gets_nothing_new_and_its_pods_stay() -> None:
    [one] = built(card(0, drained=True), card(1))
    validated(one)
    assert [each.get("taints") for each in one["spec"]["devices"]] == [
        [{"key": "mgpu.dev/drained", "effect": "NoSchedule"}],
        None,
    ]


def test_nothing_new_is_scheduled_without_mgpud() -> None:
    [one] = built(card(0), serving=False)
    assert one["spec"]["devices"][0]["taints"] == [{"key": "mgpu.dev/not-serving", "effect": "NoSchedule"}]
    assert built(card(0), serving=False, kept=Kept(taints=False)) == []


def test_where_nothing_can_be_consumed_a_card_is_a_whole() -> None:
    [one] = built(card(0), kept=Kept(consumable=False))
    validated(one)
    [found] = one["spec"]["devices"]
    assert "allowMultipleAllocations" not in found
    assert found["capacity"] == {"memory": {"value": "16160Mi"}, "core": {"value": "100"}}


def test_dropped_members_are_seen() -> None:
    written = device(card(0, healthy=False), 16, "580", True, Kept())
    assert written is not None
    read = copy.deepcopy(written)
    assert as_kept(read, written) == Kept()
    del read["allowMultipleAllocations"], read["taints"]
    assert as_kept(read, written) == Kept(consumable=False, taints=False)
    plain = device(card(0), 16, "580", True, Kept(consumable=False))
    assert plain is not None
    assert as_kept(copy.deepcopy(plain), plain) == Kept()


def test_api_server_s_own_writing_is_the_same() -> None:
    there = built(card(0, memory_mib=16384, healthy=False))
    read = json.loads(json.dumps(there).replace('"16384Mi"', '"16Gi"'))
    read[0]["spec"]["devices"][0]["taints"][0]["timeAdded"] = "2026-01-01T00:00:00Z"
    read[0]["spec"]["pool"]["generation"] = 3
    read[0]["metadata"] |= {"resourceVersion": "9", "uid": "u"}
    assert slices.same(read, there)
    assert slices.generation(read) == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda spec: spec["devices"][0]["capacity"]["memory"].update(value="1Gi"),
        lambda spec: spec["devices"][0]["attributes"].update(policy={"string": "fixed-share"}),
        lambda spec: spec.update(devices=None),
        lambda spec: spec.update(devices="nonsense"),
        lambda spec: spec.update(pool=7),
        lambda spec: spec["pool"].update(resourceSliceCount=2),
        lambda spec: spec["devices"].pop(),
        lambda spec: spec["devices"][0]["capacity"]["memory"].update(value={}),
    ],
)
def test_changed_slice_is_another(change: Any) -> None:
    there = built(card(0), card(1))
    read = copy.deepcopy(there)
    change(read[0]["spec"])
    assert not slices.same(read, there)
    assert slices.generation(read) in (0, 7)


def test_slices_of_two_generations_are_written_anew() -> None:
    there = built(*(card(index) for index in range(65)))
    read = copy.deepcopy(there)
    read[0]["spec"]["pool"]["generation"] = 8
    assert not slices.same(read, there)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4Gi", 4 << 30),
        ("4096Mi", 4 << 30),
        ("1500m", Fraction(3, 2)),
        ("1e3", 1000),
        ("12E", 12 * 10**18),
        (".5Ki", 512),
        ("+1.", 1),
        (0, 0),
        ("-3k", -3000),
    ],
)
def test_quantities(text: object, value: Fraction) -> None:
    assert quantity.read(text) == value


@pytest.mark.parametrize(
    "text",
    ["", "Gi", "1 Gi", "1gi", "0x1", "1e", "\N{FULLWIDTH DIGIT ONE}", "1Gi\n", None, 1.5, [], "1e999"],
)
def test_text_that_is_no_quantity(text: object) -> None:
    with pytest.raises(ValueError, match="is no quantity"):
        quantity.read(text)


@given(st.text())
def test_any_uuid_is_a_dns_label(uuid: str) -> None:
    found = name(f"GPU-{uuid}")
    assert len(found) <= 63
    assert found.replace("-", "a").isalnum()
    assert found[0] == "g"
    assert found[-1] != "-"
