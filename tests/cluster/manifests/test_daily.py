"""Workloads of every day: admitted as they are, and what a full GPU makes of their pods."""

import copy
from dataclasses import replace
from typing import Any

import kubernetes_validate
import pytest
import yaml

from cluster.admission import change, refuse
from cluster.admission.names import SCHEDULER, Settings
from cluster.admission.shapes import POD, Shape, shape_of
from cluster.resources.table import blocks_of
from cluster.scheduler import reading
from cluster.scheduler.pods import Pod
from cluster.scheduler.reading import Units
from cluster.scheduler.scheduler import Scheduler
from oci_specs.vocabulary import BLOCKS, SPARE
from tests.cluster.admission_support import patched
from tests.cluster.scheduler_support import inventory
from tests.support.places import REPOSITORY

FOLDER = REPOSITORY / "cluster" / "manifests" / "daily"
PAGE = (REPOSITORY / "docs" / "workloads.md").read_text()
NAMES = sorted(path.name for path in FOLDER.iterdir())
CARD_MIB = 16_160
MEMORY = "mgpu.dev/memory-mib"


def document(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text())
    return found


def admitted(shape: Shape, manifest: dict[str, Any]) -> dict[str, Any]:
    settings = Settings()
    made: dict[str, Any] = patched(manifest, change.patch(shape, manifest, {}, settings))
    assert refuse.refusal(shape, made, {}, settings) is None
    return made


def pod_of(name: str) -> dict[str, Any]:
    """What a controller makes of the workload, as admission leaves it."""
    manifest = document(name)
    shape = shape_of(manifest["apiVersion"].rpartition("/")[0], manifest["kind"])
    assert shape is not None
    template = shape.pod(admitted(shape, manifest))
    assert isinstance(template, dict)
    made = {"apiVersion": "v1", "kind": "Pod", **copy.deepcopy(template)}
    made["metadata"] = {"name": "pod", "namespace": "default", **made.get("metadata", {})}
    return admitted(POD, made)


def read(name: str, uid: str) -> Pod:
    found = reading.read_pod(pod_of(name), Units())
    assert found.refusal is None
    return replace(found.pod, uid=uid, name=uid)


def card() -> Scheduler:
    there = Scheduler()
    there.put_node("n1", inventory("n1", 1, memory_mib=CARD_MIB), 64_000, 1 << 20)
    return there


def run(there: Scheduler, pod: Pod) -> str:
    """ "" once it has its part of the GPU, else why it waits."""
    found = there.filter(pod, ["n1"])
    if not found.fits:
        return found.refused["n1"]
    there.put_pod(pod, "n1", there.choose(pod, "n1"))
    return ""


def test_page_names_every_example() -> None:
    assert all(f"(../cluster/manifests/daily/{name})" in PAGE for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_valid_by_the_published_schema(name: str) -> None:
    kubernetes_validate.validate(document(name), kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("name", NAMES)
def test_pods_are_for_mgpus_runtime_and_scheduler_with_blocks_beside_their_memory(name: str) -> None:
    spec = pod_of(name)["spec"]
    assert (spec["runtimeClassName"], spec["schedulerName"]) == ("mgpu", SCHEDULER)
    for container in (*spec["containers"], *spec.get("initContainers", [])):
        limits = container["resources"]["limits"]
        blocks, spare = blocks_of(int(limits[MEMORY]))
        assert (int(limits[BLOCKS]), int(limits.get(SPARE, 0))) == (blocks, spare)


def test_service_is_rolled_on_a_full_gpu_once_the_old_pod_has_ended() -> None:
    assert document("service.yaml")["spec"]["strategy"]["rollingUpdate"] == {
        "maxSurge": 0,
        "maxUnavailable": 1,
    }
    there = card()
    assert run(there, read("service.yaml", "old")) == ""
    # What a surge would make is the pod that waits for ever.
    assert run(there, read("service.yaml", "new")).startswith(
        "node n1: 12000 MiB asked, but the most that is free is"
    )
    there.remove_pod("old")
    assert run(there, read("service.yaml", "new")) == ""


def test_pods_of_a_job_take_turns_on_one_gpu_behind_online_work() -> None:
    assert pod_of("jobs.yaml")["metadata"]["annotations"]["mgpu.dev/qos"] == "offline"
    there, waits = card(), 0
    running: list[str] = []
    for number in range(document("jobs.yaml")["spec"]["completions"]):
        pod = read("jobs.yaml", f"p{number}")
        while run(there, pod):
            waits += 1
            there.remove_pod(running.pop(0))
        running.append(pod.uid)
    assert (waits, len(running)) == (10, 2)


def test_pod_of_a_stateful_set_comes_back_where_it_was() -> None:
    there = card()
    assert [run(there, read("stateful.yaml", uid)) for uid in ("store-0", "store-1")] == ["", ""]
    there.remove_pod("store-1")
    assert run(there, read("stateful.yaml", "store-1-anew")) == ""


def test_init_container_shares_mains_part_and_sidecar_has_its_own() -> None:
    found = reading.read_pod(pod_of("init-and-sidecar.yaml"), Units())
    assert dict(found.lenders) == {"convert": "main"}
    assert {each.name for each in found.pod.containers} == {"watch", "main"}
