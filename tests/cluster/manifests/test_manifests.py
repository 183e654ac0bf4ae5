"""The manifests by Kubernetes' published schemas, and the examples by the vocabulary they are written in."""

from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from cluster.admission.names import SCHEDULER
from cluster.resources.table import RESOURCES
from install.parts import HANDLER
from native_sched.daemon.node.config import NodeConfig
from oci_specs import parse, vocabulary
from tests.cluster.manifest_files import AGENT, FOLDER, NODE, documents, pod_of
from tests.support.places import REPOSITORY
from tools import release

EXAMPLES = sorted((FOLDER / "examples").glob("*.yaml"))
MANIFESTS = [*sorted(FOLDER.glob("*.yaml")), *EXAMPLES]
# appArmorProfile in a securityContext came with 1.30.
OLDEST, NEWEST = "1.30", kubernetes_validate.latest_version()


def test_manifests_exist_of_each_kind() -> None:
    kinds = {document["kind"] for path in MANIFESTS for document in documents(path)}
    assert kinds >= {"ClusterRole", "DaemonSet", "Namespace", "Pod", "RuntimeClass", "ServiceAccount"}


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_valid_by_the_published_schema(path: Path, version: str) -> None:
    for document in documents(path):
        kubernetes_validate.validate(document, version, strict=True)


def test_unknown_member_would_be_found() -> None:
    [document] = documents(EXAMPLES[0])
    document["spec"]["runtimeClass"] = "mgpu"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, NEWEST, strict=True)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_asks_for_a_gpu_by_our_handler(path: Path) -> None:
    [pod] = documents(path)
    assert pod["spec"]["runtimeClassName"] == HANDLER
    request = parse.request(pod["metadata"]["annotations"], {}, NodeConfig())
    assert request is not None
    assert request.memory is not None


@pytest.mark.parametrize("path", [AGENT, NODE], ids=lambda path: path.name)
def test_image_is_of_this_version(path: Path) -> None:
    spec = pod_of(path)
    assert {each["image"] for each in (*spec["initContainers"], *spec["containers"])} == {
        f"mgpu:{release.version()}"
    }


def test_extenders_image_is_of_this_version() -> None:
    [deployment] = [each for each in documents(FOLDER / "scheduler.yaml") if each["kind"] == "Deployment"]
    images = [each["image"] for each in deployment["spec"]["template"]["spec"]["containers"]]
    assert f"mgpu-scheduler:{release.version()}" in images


def test_every_vocabulary_has_an_example() -> None:
    def prefix(name: str) -> str:
        return name.partition("/")[0]

    shown = {prefix(name) for path in EXAMPLES for name in documents(path)[0]["metadata"]["annotations"]}
    assert shown == {prefix(key.name) for key in vocabulary.KEYS if key.source == vocabulary.ANNOTATION}


def test_agent_may_do_what_its_units_may() -> None:
    units = set()
    for name in ("mgpu-holder", "mgpud"):
        unit = (REPOSITORY / "install" / "units" / f"{name}.service").read_text()
        [line] = [line for line in unit.splitlines() if line.startswith("CapabilityBoundingSet=")]
        units |= {name.removeprefix("CAP_") for name in line.partition("=")[2].split()}
    [program] = pod_of(AGENT)["containers"]
    assert set(program["securityContext"]["capabilities"]["add"]) == units | {"SYS_CHROOT"}
    assert pod_of(AGENT)["hostPID"] is True


def test_pods_of_the_class_go_only_where_mgpud_serves() -> None:
    """An agent's node is chosen by the operator; whether it serves is seen."""
    [runtime_class] = documents(FOLDER / "runtimeclass.yaml")
    assert runtime_class["scheduling"]["nodeSelector"] == {"mgpu.dev/serving": "true"}
    assert pod_of(AGENT)["nodeSelector"] == pod_of(NODE)["nodeSelector"] == {"mgpu.dev/node": "true"}


def test_update_leaves_the_holder_alone() -> None:
    [agent] = [each for each in documents(AGENT) if each["kind"] == "DaemonSet"]
    assert agent["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert (
        agent["spec"]["template"]["spec"]["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][-1]
        == "drain"
    )


def test_scheduler_is_asked_about_every_resource_that_a_node_offers() -> None:
    [config] = [each for each in documents(FOLDER / "scheduler.yaml") if each["kind"] == "ConfigMap"]
    scheduler = yaml.safe_load(config["data"]["scheduler.yaml"])
    [extender] = scheduler["extenders"]
    assert [each["name"] for each in extender["managedResources"]] == [
        each.name for each in RESOURCES if not each.opt_in
    ]
    assert extender["nodeCacheCapable"]
    assert extender["bindVerb"] == "bind"
    assert [each["schedulerName"] for each in scheduler["profiles"]] == [SCHEDULER]
