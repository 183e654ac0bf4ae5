"""The committed manifest of admission: what the code says, and right by Kubernetes' published schemas."""

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

TEXT = manifests.text(Settings())
DOCUMENTS: list[dict[str, Any]] = list(yaml.safe_load_all(TEXT))
# A webhook's conditions are stable since 1.30.
OLDEST, NEWEST = "1.30", kubernetes_validate.latest_version()
# What the API server keeps is at most this large, and what kubectl apply adds of it as an annotation.
ETCD_MAX_BYTES = 1536 * 1024
APPLY_MAX_BYTES = 256 * 1024


def test_committed_file_is_what_the_code_writes() -> None:
    assert manifests.PATH.read_text() == TEXT, "write it anew: python -m cluster.admission.manifests"


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_valid_by_the_published_schema(version: str) -> None:
    for document in DOCUMENTS:
        kubernetes_validate.validate(document, version, strict=True)


def test_kubectl_apply_can_bring_every_object() -> None:
    for document in DOCUMENTS:
        assert len(yaml.safe_dump(document)) < APPLY_MAX_BYTES < ETCD_MAX_BYTES


def test_webhooks_have_no_side_effects_and_fail_closed() -> None:
    hooks = [hook for document in DOCUMENTS for hook in document.get("webhooks", [])]
    assert len(hooks) == 6
    for hook in hooks:
        assert (hook["sideEffects"], hook["failurePolicy"]) == ("None", "Fail")
        assert hook["matchConditions"]
        [selector] = hook["namespaceSelector"]["matchExpressions"]
        assert selector["values"] == [*EXCLUDED_NAMESPACES]


def test_servers_image_is_of_this_version() -> None:
    [deployment] = [each for each in DOCUMENTS if each["kind"] == "Deployment"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"mgpu:{release.version()}"


def test_server_is_told_the_operators_choices() -> None:
    text = manifests.text(Settings(scheduler=DEFAULT_SCHEDULER, hami=True, aliyun_mib=True))
    for option in (f"--scheduler={DEFAULT_SCHEDULER}", "--hami", "--aliyun-mib"):
        assert f"- {option}" in text
        assert f"- {option}" not in TEXT


def test_names_are_those_that_nodes_offer() -> None:
    assert {each.name for each in RESOURCES if each.opt_in} == set(HAMI)
    assert {each.name for each in RESOURCES if not each.opt_in} <= set(KNOWN)


def test_every_key_of_a_vendor_that_asks_is_of_a_family() -> None:
    """A misspelt one is then seen; qGPU's and katalyst's classes are no families of GPU keys."""
    outside = {name for name in ANNOTATIONS if not name.startswith(FAMILIES)}
    assert outside == {"katalyst.kubewharf.io/qos_level", "tke.cloud.tencent.com/app-class"}
