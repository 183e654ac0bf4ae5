"""The examples for quotas and queues: valid, and about names that nodes offer and admission writes."""

import copy
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from cluster.admission import change, refuse
from cluster.admission.names import Settings
from cluster.admission.shapes import POD
from cluster.node.published import SERVING
from cluster.resources.table import RESOURCES, offered
from cluster.scheduler.groups import group_of
from oci_specs import vocabulary
from tests.cluster import extender_support
from tests.cluster.admission_support import patched
from tests.cluster.api_server import ApiServer
from tests.cluster.extender_support import NODES, PODS, extender, until
from tests.cluster.inventories import node
from tests.support.places import REPOSITORY

FOLDER = REPOSITORY / "cluster" / "manifests" / "beside"
PAGES = "".join((REPOSITORY / "docs" / name).read_text() for name in ("cluster.md", "workloads.md"))
OFFERED = {each.name for each in RESOURCES}


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def test_page_names_every_example() -> None:
    assert all(f"(../cluster/manifests/beside/{path.name})" in PAGES for path in FOLDER.iterdir())


@pytest.mark.parametrize(
    "name", ["quota.yaml", "limit-range.yaml", "kueue.yaml", "gang.yaml", "teams.yaml", "spare-node.yaml"]
)
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


def test_quotas_of_teams_leave_no_name_without_a_bound() -> None:
    """Memory in MiB is counted in blocks, and what is spare only takes away."""
    counted = {each.name for each in RESOURCES if each.by == "kubelet" and not each.opt_in}
    quotas = [each["spec"]["hard"] for each in documents("teams.yaml") if each["kind"] == "ResourceQuota"]
    assert len(quotas) == 2
    for hard in quotas:
        names = {name.removeprefix("requests.") for name in hard}
        assert names == counted - {vocabulary.SPARE}
        assert 0 < sum(amount != "0" for amount in hard.values()) < len(hard)


def test_overlay_of_an_autoscaler_is_what_such_a_node_offers() -> None:
    pool, overlay = documents("autoscaler.yaml")
    there = node(*[15360] * 4)
    amounts = {each.name: str(each.amount(there)) for each in offered(there)}
    # What is lent moves with use, and is nothing on a node that has just come.
    assert overlay["spec"]["capacity"] == {name: amount for name, amount in amounts.items() if amount != "0"}
    assert overlay["spec"]["requirements"] == pool["spec"]["template"]["spec"]["requirements"]
    labels = pool["spec"]["template"]["metadata"]["labels"]
    [runtime] = yaml.safe_load_all((FOLDER.parent / "runtimeclass.yaml").read_text())
    assert runtime["scheduling"]["nodeSelector"] == {SERVING: labels[SERVING]}
    agent = yaml.safe_load((FOLDER.parent / "agent.yaml").read_text())
    assert agent["spec"]["template"]["spec"]["nodeSelector"].items() <= labels.items()


def spare_pod() -> dict[str, Any]:
    """What the Deployment makes, as admission leaves it, with its class's priority."""
    priority, deployment = documents("spare-node.yaml")
    template = copy.deepcopy(deployment["spec"]["template"])
    template["metadata"] |= {"name": "spare", "namespace": "default"}
    asked = {"apiVersion": "v1", "kind": "Pod", **template}
    settings = Settings()
    made: dict[str, Any] = patched(asked, change.patch(POD, asked, {}, settings))
    assert refuse.refusal(POD, made, {}, settings) is None
    assert made["spec"]["priorityClassName"] == priority["metadata"]["name"]
    # Below -10 cluster-autoscaler takes a pod for one that may wait for ever.
    assert -10 <= priority["value"] < 0
    made["metadata"]["uid"] = "spare"
    made["spec"]["priority"] = priority["value"]
    made["status"] = {"phase": "Pending"}
    return made


def limits(pod: dict[str, Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    for container in pod["spec"]["containers"]:
        for name, amount in container["resources"]["limits"].items():
            found[name] = found.get(name, 0) + int(amount)
    return found


def test_sum_of_a_spare_node_is_that_of_a_node_where_nothing_runs() -> None:
    """What autoscalers compare: they know sums alone."""
    amounts = {each.name: each.amount(node(*[15360] * 4)) for each in offered(node(*[15360] * 4))}
    spare = limits(spare_pod())
    assert all(amount <= amounts[name] for name, amount in spare.items())
    # Whatever another pod has is lacking.
    assert spare[vocabulary.MEMORY_MIB] == amounts[vocabulary.MEMORY_MIB]


async def test_pod_that_fits_a_sum_and_no_gpu_takes_the_spare_node(
    server: ApiServer, tmp_path: Path
) -> None:
    for name in ("used", "spare"):
        server.put(NODES, extender_support.node(name, *[15360] * 4, model="T4"))
    async with extender(server, tmp_path) as asked:
        for number in range(4):
            small = server.put(PODS, extender_support.pod(f"p{number}", 10_000))
            assert await asked.schedule(small, "used") == "used"
        spare = server.put(PODS, spare_pod())
        assert await asked.schedule(spare, "spare") == "spare"
        new = server.put(PODS, extender_support.pod("new", 6000))
        # As kube-scheduler asks: of nodes whose sum suffices, then of those where a pod would end.
        found = await asked.filter(new, "used")
        assert (found["Error"], found["NodeNames"]) == ("", [])
        assert found["FailedAndUnresolvableNodes"].keys() == {"used"}
        offers = {"spare": {"Pods": [{"UID": "spare"}]}}
        ended = await asked.call("preempt", {"Pod": new, "NodeNameToMetaVictims": offers})
        assert ended["NodeNameToMetaVictims"]["spare"]["Pods"] == [{"UID": "spare"}]
        server.remove(f"{PODS}/spare")
        await until(lambda: asked.filter(new, "used", "spare"), lambda answer: answer["NodeNames"])
        assert await asked.schedule(new, "used", "spare") == "spare"
        # The next one waits, and a node that has just come takes it.
        again = server.put(PODS, spare_pod() | {"metadata": spare["metadata"] | {"uid": "again"}})
        assert (await asked.filter(again, "used", "spare"))["NodeNames"] == []
        server.put(NODES, extender_support.node("grown", *[15360] * 4, model="T4"))
        await until(
            lambda: asked.filter(again, "used", "spare", "grown"), lambda answer: answer["NodeNames"]
        )
