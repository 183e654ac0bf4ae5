"""The classes and the examples of claims: by Kubernetes' published schemas, and by what the driver makes of
them once they are allocated.
"""

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from cluster.api import quantity
from cluster.dra import allocation
from cluster.dra.devices import Kept, device
from cluster.resources.inventory import Card
from oci_specs import schemas
from oci_specs.claim import ClaimedRequest
from tests.support.places import REPOSITORY

FOLDER = REPOSITORY / "cluster" / "manifests" / "claims"
CLASSES, EXAMPLES = FOLDER / "deviceclasses.yaml", sorted(FOLDER.glob("example-*.yaml"))
OLDEST, NEWEST = "1.34", kubernetes_validate.latest_version()
CARDS = [
    Card(index=index, uuid=f"GPU-{index}", minor=index, model="V100", memory_mib=16160, architecture="volta")
    for index in range(2)
]
BY_NAME = {f"gpu-{card.index}": card for card in CARDS}
Json = dict[str, Any]


def documents(path: Path) -> list[Json]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def classes() -> dict[str, Json]:
    return {each["metadata"]["name"]: each["spec"] for each in documents(CLASSES)}


def claims(path: Path) -> list[Json]:
    """Each with its spec, also where that is a template's."""
    found = []
    for each in documents(path):
        if each["kind"] == "ResourceClaimTemplate":
            found.append({**each, "spec": each["spec"]["spec"]})
        elif each["kind"] == "ResourceClaim":
            found.append(each)
    return found


def consumed(asked: Json, offered: Json) -> dict[str, str]:
    """Of each capacity what is asked for, else its default; rounding is left to schedulers."""
    amounts = {}
    for name, capacity in offered.items():
        amounts[name] = str(asked.pop(name, capacity["requestPolicy"]["default"]))
        assert quantity.read(amounts[name]) <= quantity.read(capacity["value"])
    assert not asked, "a capacity that no device has"
    return amounts


def allocated(claim: Json, *, consumable: bool) -> Json:
    """As a scheduler does it, on cards that nobody uses."""
    spec, results, config = claim["spec"]["devices"], [], []
    for request in spec["requests"]:
        exactly = request["exactly"]
        of_class = classes()[exactly["deviceClassName"]]
        config += [
            {"source": "FromClass", "requests": [request["name"]], **each}
            for each in of_class.get("config", [])
        ]
        asked = exactly.get("capacity", {}).get("requests", {})
        for card in CARDS[: exactly.get("count", 1)]:
            offered = device(card, 16, "580", True, Kept(consumable=consumable))
            assert offered is not None
            result = {
                "request": request["name"],
                "driver": "mgpu.dev",
                "pool": "n1",
                "device": offered["name"],
            }
            if consumable:
                result["consumedCapacity"] = consumed(dict(asked), offered["capacity"])
            results.append(result)
    config += [{"source": "FromClaim", **each} for each in spec.get("config", [])]
    meta = {"namespace": "default", "uid": "u", **claim["metadata"]}
    return {"metadata": meta, "status": {"allocation": {"devices": {"results": results, "config": config}}}}


def given(path: Path, *, consumable: bool = True) -> list[ClaimedRequest]:
    found = []
    for claim in claims(path):
        [request] = allocation.read(allocated(claim, consumable=consumable), "u", "n1", BY_NAME)[0].requests
        found.append(request)
    return found


@pytest.mark.parametrize("path", [CLASSES, *EXAMPLES], ids=lambda path: path.name)
def test_valid_by_the_published_schema(path: Path) -> None:
    for document in documents(path):
        for version in (OLDEST, NEWEST):
            kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("path", [CLASSES, *EXAMPLES], ids=lambda path: path.name)
def test_selectors_and_constraints_are_of_what_devices_have(path: Path) -> None:
    offered = device(CARDS[0], 16, "580", True, Kept())
    assert offered is not None
    text = path.read_text()
    for member in ("attributes", "capacity"):
        named = set(re.findall(rf'device\.{member}\["mgpu\.dev"\]\.(\w+)', text))
        assert named <= set(offered[member])
    assert set(re.findall(r"Attribute: mgpu\.dev/(\w+)", text)) <= set(offered["attributes"])


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_pods_of_an_example_use_its_claims_under_our_handler(path: Path) -> None:
    names = {claim["metadata"]["name"] for claim in claims(path)}
    pods = [each["spec"] for each in documents(path) if each["kind"] == "Pod"]
    assert pods
    for pod in pods:
        assert pod["runtimeClassName"] == "mgpu"
        [used] = pod["resourceClaims"]
        assert {used.get("resourceClaimName"), used.get("resourceClaimTemplateName")} & names
        for container in pod["containers"]:
            assert container["resources"]["claims"] == [{"name": used["name"]}]


def test_example_of_a_part() -> None:
    [request] = given(FOLDER / "example-memory.yaml")
    [card] = request.cards
    assert (card.memory_mib, card.core_percent) == (4096, 30)
    assert (request.qos, request.policy, request.containers) == ("online", "guaranteed-burst-share", 1)


def test_example_of_two_namespaces_fits_one_card() -> None:
    first, second = given(FOLDER / "example-namespaces.yaml")
    assert (first.qos, second.qos) == ("online", "offline")
    assert [card.memory_mib for each in (first, second) for card in each.cards] == [6144, 8192]
    assert first.cards[0].uuid == second.cards[0].uuid
    assert CARDS[0].memory_mib >= 6144 + 8192


def test_example_for_two_containers() -> None:
    [request] = given(FOLDER / "example-shared.yaml")
    assert request.containers == 2
    assert [(card.memory_mib, card.core_percent) for card in request.cards] == [(8192, 40)]


def test_example_of_two_gpus() -> None:
    [request] = given(FOLDER / "example-two-gpus.yaml")
    assert [(card.uuid, card.memory_mib) for card in request.cards] == [("GPU-0", 2048), ("GPU-1", 2048)]


@pytest.mark.parametrize("consumable", [True, False])
def test_example_of_a_whole_gpu_needs_no_consumable_capacity(consumable: bool) -> None:
    [request] = given(FOLDER / "example-whole.yaml", consumable=consumable)
    assert request.containers == 2
    assert [card.memory_mib for card in request.cards] == [None]


def test_no_example_is_left_out() -> None:
    known = re.findall(r'FOLDER / "(example-[a-z-]+\.yaml)"', Path(__file__).read_text())
    assert sorted(known) == [path.name for path in EXAMPLES]


def test_parameters_on_the_page_are_what_the_driver_takes() -> None:
    page = (REPOSITORY / "docs" / "cluster.md").read_text()
    shown = [
        yaml.safe_load(text) for text in re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    ]
    [parameters] = [each for each in shown if each.get("kind") == "GpuConfig"]
    schemas.validate("gpu_config", parameters)
    assert parameters.keys() == schemas.load("gpu_config")["properties"].keys()


def test_attributes_and_capacities_on_the_page_are_the_devices() -> None:
    page = (REPOSITORY / "docs" / "cluster.md").read_text()
    section = page[page.index("### What there is to claim") : page.index("### Asking")]
    named = {
        name
        for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    }
    card = Card(
        index=0,
        uuid="GPU-0",
        minor=0,
        model="V100",
        memory_mib=16160,
        architecture="volta",
        policy="fixed-share",
    )
    offered = device(card, 16, "580", True, Kept())
    assert offered is not None
    assert named == {*offered["attributes"], *offered["capacity"]}
