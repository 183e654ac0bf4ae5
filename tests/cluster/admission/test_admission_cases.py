"""What admission changes and refuses, by the API server's own evaluator and patch library."""

import functools
from pathlib import Path

import pytest
import yaml

from tests.cluster import admission_support as admission
from tests.cluster import evaluator
from tests.cluster.admission_support import Case, Object, Outcome
from tests.support.places import REPOSITORY
from tools.debian_archive import Unavailable

# The first test builds the evaluator, from sources that it brings.
pytestmark = pytest.mark.timeout(900)

CASES = admission.cases()
SEEDS = sorted((REPOSITORY / "tests" / "cluster" / "seed").glob("*.yaml"))
Reviews = list[tuple[Object, Object | None]]
# Of Kubernetes: the first whose webhooks have conditions, and the evaluator's own.
VERSIONS = ("1.30", "")


@pytest.fixture(autouse=True, scope="module")
def _evaluator() -> None:
    try:
        evaluator.program()
    except Unavailable as why:
        pytest.skip(str(why))


@functools.cache
def outcomes() -> list[Outcome]:
    """Of all cases at once."""
    return admission.outcomes([(case.manifest, case.old) for case in CASES])


@functools.cache
def wanted() -> list[Object]:
    return admission.typed([case.after for case in CASES])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case) -> None:
    place = CASES.index(case)
    outcome = outcomes()[place]
    assert outcome.refused == case.refused
    if not case.refused:
        assert outcome.after == wanted()[place]
        assert outcome.warned == case.warned


@pytest.mark.parametrize("version", VERSIONS)
def test_api_server_asks_about_whatever_is_changed_or_refused(version: str) -> None:
    answers = admission.asked([(case.manifest, case.old) for case in CASES], version)
    came = admission.typed([case.manifest for case in CASES])
    for case, is_asked, outcome, before in zip(CASES, answers, outcomes(), came, strict=True):
        concerns = bool(outcome.refused or outcome.warned) or outcome.after != before
        assert is_asked or not concerns, case.name


@pytest.mark.parametrize("version", VERSIONS)
def test_api_server_does_not_ask_about_a_pod_of_others(version: str) -> None:
    pod = admission.manifest({"limits": {"nvidia.com/gpu": 1}, "annotations": {"aliyun.com/other": "1"}})
    assert admission.asked([(pod, None)], version) == [False]


def test_changed_manifest_is_not_changed_again() -> None:
    """As when another plugin has changed the object, and ours is asked once more."""
    admitted = [
        (outcome.after, case.old)
        for case, outcome in zip(CASES, outcomes(), strict=True)
        if not case.refused
    ]
    again = admission.outcomes(admitted)
    assert [outcome.after for outcome in again] == [after for after, _ in admitted]
    assert not any(outcome.refused for outcome in again)


def test_update_of_nothing_is_no_change() -> None:
    admitted: Reviews = [
        (outcome.after, outcome.after)
        for case, outcome in zip(CASES, outcomes(), strict=True)
        if not case.refused
    ]
    again = admission.outcomes(admitted)
    assert [outcome.after for outcome in again] == [after for after, _ in admitted]
    assert not any(outcome.refused or outcome.warned for outcome in again)


@pytest.mark.parametrize("path", SEEDS, ids=lambda path: path.stem)
def test_seeds_pod_gets_class_scheduler_and_its_workloads_words(path: Path) -> None:
    [workload] = yaml.safe_load_all(path.read_text())
    [made] = admission.outcomes([(workload, None)])
    assert not made.refused
    template = made.after["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", **template}
    pod["metadata"] = {"name": "p", "namespace": "default", **template["metadata"]}
    [born] = admission.outcomes([(pod, None)])
    assert (born.refused, born.warned) == ("", [])
    assert born.after["spec"]["runtimeClassName"] == "mgpu"
    assert born.after["spec"]["schedulerName"] == "mgpu-scheduler"
    limits = born.after["spec"]["containers"][0]["resources"]["limits"]
    if "ack" in path.stem:
        assert born.after["metadata"]["annotations"] == {"aliyun.com/gpu-count": "2"}
        assert limits == {"aliyun.com/gpu-mem": "8"}
    else:
        assert born.after["metadata"]["annotations"] == workload["metadata"]["annotations"]
        assert limits["mgpu.dev/memory-64mib"] == "64"
        assert "mgpu.dev/memory-spare-mib" not in limits


def test_seeds_are_all_three() -> None:
    assert len(SEEDS) == 3


def test_names_without_number_are_refused_by_one() -> None:
    """As many as an object may have annotations for: 256 KiB."""
    annotations = {f"mgpu.dev/{place:05}": "1" for place in range(12_000)}
    pod = admission.manifest({"annotations": annotations})
    [outcome] = admission.outcomes([(pod, None)])
    assert outcome.refused.startswith('mgpu: "mgpu.dev/00000" is not a key of mgpu; ')
