"""The committed manifests of admission: what the code says, and right by Kubernetes' published schemas."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest
import yaml

from cluster.admission import manifests
from cluster.admission.names import (
    ANNOTATIONS,
    DEFAULT_SCHEDULER,
    EXCLUDED_NAMESPACES,
    FAMILIES,
    HAMI,
    KNOWN,
    Settings,
)
from cluster.resources.table import RESOURCES
from tools import release

FILES = manifests.files(Settings())
# The releases that each is for: mutating policies are v1beta1 from 1.34 and v1 from 1.36; a webhook's
# conditions are stable since 1.30.
OLDEST, NEWEST = "1.30", kubernetes_validate.latest_version()
VERSIONS = {"mutating-v1.yaml": ["1.36", NEWEST], "mutating-v1beta1.yaml": ["1.34", "1.36"]}
# What the API server keeps is at most this large, and what kubectl apply adds of it as an annotation.
ETCD_MAX_BYTES = 1536 * 1024
APPLY_MAX_BYTES = 256 * 1024


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(FILES[name]))


def test_the_committed_files_are_what_the_code_writes() -> None:
    there = {path.name: path.read_text() for path in manifests.FOLDER.iterdir()}
    assert there == FILES, "write them anew: python -m cluster.admission.manifests"


@pytest.mark.parametrize(
    ("name", "version"),
    [(name, version) for name in FILES for version in VERSIONS.get(name, [OLDEST, NEWEST])],
)
def test_valid_by_the_published_schema(name: str, version: str) -> None:
    for document in documents(name):
        kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("name", FILES)
def test_kubectl_apply_can_bring_every_object(name: str) -> None:
    for document in documents(name):
        assert len(yaml.safe_dump(document)) < APPLY_MAX_BYTES < ETCD_MAX_BYTES


@pytest.mark.parametrize("name", FILES)
def test_our_own_namespaces_are_not_judged(name: str) -> None:
    found = []
    for document in documents(name):
        spec = document.get("spec", {})
        found += [spec["matchConstraints"]] if "matchConstraints" in spec else []
        found += document.get("webhooks", [])
    assert all(
        each["namespaceSelector"]["matchExpressions"][0]["values"] == [*EXCLUDED_NAMESPACES]
        for each in found
    )
    assert found


def test_webhooks_have_no_side_effects_and_fail_closed() -> None:
    hooks = [hook for document in documents("webhook.yaml") for hook in document.get("webhooks", [])]
    assert len(hooks) == 6
    for hook in hooks:
        assert (hook["sideEffects"], hook["failurePolicy"]) == ("None", "Fail")
        assert hook["matchConditions"]


def test_the_servers_image_is_of_this_version() -> None:
    [deployment] = [each for each in documents("webhook.yaml") if each["kind"] == "Deployment"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"mgpu:{release.version()}"


def test_a_cluster_that_places_by_its_own_scheduler_gets_that() -> None:
    text = manifests.files(Settings(scheduler=DEFAULT_SCHEDULER))["mutating-v1.yaml"]
    assert '"mgpu-scheduler"' not in text


def test_hamis_names_are_ours_where_the_operator_says_so() -> None:
    plain, hami = (manifests.files(Settings(hami=on))["mutating-v1.yaml"] for on in (False, True))
    assert not any(name in plain for name in HAMI)
    assert all(name in hami for name in HAMI)


def test_names_are_those_that_nodes_offer() -> None:
    assert {each.name for each in RESOURCES if each.opt_in} == set(HAMI)
    assert {each.name for each in RESOURCES if not each.opt_in} <= set(KNOWN)


def test_every_key_of_a_vendor_that_asks_is_of_a_family() -> None:
    """A misspelt one is then seen; qGPU's and katalyst's classes are no families of GPU keys."""
    outside = {name for name in ANNOTATIONS if not name.startswith(FAMILIES)}
    assert outside == {"katalyst.kubewharf.io/qos_level", "tke.cloud.tencent.com/app-class"}
