"""The examples for quotas and queues: valid, and about names that nodes offer and admission writes."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest
import yaml

from cluster.resources.table import RESOURCES
from cluster.scheduler.groups import group_of
from oci_specs import vocabulary
from tests.support.places import REPOSITORY

FOLDER = REPOSITORY / "cluster" / "manifests" / "beside"
PAGE = (REPOSITORY / "docs" / "cluster.md").read_text()
OFFERED = {each.name for each in RESOURCES}


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def test_page_names_every_example() -> None:
    assert all(f"(../cluster/manifests/beside/{path.name})" in PAGE for path in FOLDER.iterdir())


@pytest.mark.parametrize("name", ["quota.yaml", "limit-range.yaml", "kueue.yaml", "gang.yaml"])
def test_valid_by_the_published_schema(name: str) -> None:
    """Kueue's own kinds have none that a registry brings."""
    found = [each for each in documents(name) if "kueue" not in each["apiVersion"]]
    assert found
    for each in found:
        kubernetes_validate.validate(each, kubernetes_validate.latest_version(), strict=True)


def test_quota_counts_what_nodes_offer() -> None:
    [quota] = documents("quota.yaml")
    assert {name.removeprefix("requests.") for name in quota["spec"]["hard"]} <= OFFERED
    assert f"requests.{vocabulary.BLOCKS}" in quota["spec"]["hard"]


def test_limits_of_a_namespace_are_about_one_name_and_have_a_default() -> None:
    """Two names for one amount are refused; without a default Kubernetes takes the maximum for one."""
    [limits] = documents("limit-range.yaml")
    [container] = limits["spec"]["limits"]
    [name] = container["default"]
    assert name in OFFERED
    assert container["default"].keys() == container["min"].keys() == container["max"].keys()


def test_queue_covers_all_that_its_job_asks_for() -> None:
    flavor, queue, local, job = documents("kueue.yaml")
    [group] = queue["spec"]["resourceGroups"]
    [quotas] = group["flavors"]
    assert quotas["name"] == flavor["metadata"]["name"]
    assert [each["name"] for each in quotas["resources"]] == group["coveredResources"]
    assert local["spec"]["clusterQueue"] == queue["metadata"]["name"]
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == local["metadata"]["name"]
    [container] = job["spec"]["template"]["spec"]["containers"]
    asked = container["resources"]["requests"].keys() | container["resources"]["limits"].keys()
    assert asked == set(group["coveredResources"])


def test_ranks_of_the_job_are_a_gang_of_its_size() -> None:
    [job] = documents("gang.yaml")
    template = job["spec"]["template"]
    group = group_of({"namespace": "default", **template["metadata"]}, template["spec"])
    assert group is not None
    assert group.size == job["spec"]["parallelism"] == job["spec"]["completions"]
