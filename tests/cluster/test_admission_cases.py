"""What admission changes and refuses, in both its forms, by the API server's own evaluator and patch
library.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.cluster import admission, evaluator
from tests.cluster.admission import Case, Object, Outcome
from tests.support.places import REPOSITORY
from tools.debian_archive import Unavailable

# The first test builds the evaluator, from sources that it brings.
pytestmark = pytest.mark.timeout(900)

CASES = admission.cases()
SEEDS = sorted((REPOSITORY / "tests" / "cluster" / "seed").glob("*.yaml"))
Reviews = list[tuple[Object, Object | None]]
# The oldest server takes of CEL what the one before it knew; the newest is the evaluator's own.
FORMS: dict[str, Callable[[Reviews], list[Outcome]]] = {
    "policies of 1.34": lambda reviews: admission.by_policies(reviews, "1.33", "v1beta1"),
    "policies": lambda reviews: admission.by_policies(reviews, ""),
    "webhook": admission.by_webhook,
}


@pytest.fixture(autouse=True, scope="module")
def _evaluator() -> None:
    try:
        evaluator.program()
    except Unavailable as why:
        pytest.skip(str(why))


@functools.cache
def outcomes(form: str) -> list[Outcome]:
    """Of all cases at once: the expressions are compiled once."""
    return FORMS[form]([(case.manifest, case.old) for case in CASES])


@functools.cache
def wanted() -> list[Object]:
    return admission.typed([case.after for case in CASES])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case, form: str) -> None:
    place = CASES.index(case)
    outcome = outcomes(form)[place]
    assert outcome.refused == case.refused
    if not case.refused:
        assert outcome.after == wanted()[place]
        assert outcome.warned == case.warned


@pytest.mark.parametrize("form", FORMS)
def test_a_changed_manifest_is_not_changed_again(form: str) -> None:
    """As when another plugin has changed the object, and ours are asked once more."""
    admitted = [
        (outcome.after, case.old)
        for case, outcome in zip(CASES, outcomes(form), strict=True)
        if not case.refused
    ]
    again = FORMS[form](admitted)
    assert [outcome.after for outcome in again] == [after for after, _ in admitted]
    assert not any(outcome.refused for outcome in again)


@pytest.mark.parametrize("form", FORMS)
def test_an_update_of_nothing_is_no_change(form: str) -> None:
    admitted: Reviews = [
        (outcome.after, outcome.after)
        for case, outcome in zip(CASES, outcomes(form), strict=True)
        if not case.refused
    ]
    again = FORMS[form](admitted)
    assert [outcome.after for outcome in again] == [after for after, _ in admitted]
    assert not any(outcome.refused or outcome.warned for outcome in again)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("path", SEEDS, ids=lambda path: path.stem)
def test_a_seeds_pod_gets_class_scheduler_and_its_workloads_words(path: Path, form: str) -> None:
    [workload] = yaml.safe_load_all(path.read_text())
    [made] = FORMS[form]([(workload, None)])
    assert not made.refused
    template = made.after["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", **template}
    pod["metadata"] = {"name": "p", "namespace": "default", **template["metadata"]}
    [born] = FORMS[form]([(pod, None)])
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


def test_the_three_forms_are_compared_with_the_seeds() -> None:
    assert len(SEEDS) == 3


def test_a_pod_of_five_hundred_containers_is_judged() -> None:
    [outcome] = evaluator.review(admission.objects("v1"), [{"object": admission.large_pod(200_000)}], "1.33")
    assert "error" not in outcome
    assert len(outcome["object"]["spec"]["containers"]) > 480
    assert 0 < outcome["cost"] < 1_000_000


def test_an_expression_beyond_the_api_server_s_budget_is_found() -> None:
    [outcome] = evaluator.review(
        admission.objects("v1"), [{"object": admission.large_pod(1_500_000)}], "1.33"
    )
    assert "cost limit exceeded" in outcome["error"]


def test_names_without_number_are_refused_by_one() -> None:
    """As many as an object may have annotations for: 256 KiB."""
    annotations = {f"mgpu.dev/{place:05}": "1" for place in range(12_000)}
    pod = admission.manifest({"annotations": annotations})
    [by_policies], [by_webhook] = (
        admission.by_policies([(pod, None)], "1.33"),
        admission.by_webhook([(pod, None)]),
    )
    assert by_policies.refused == by_webhook.refused
    assert by_policies.refused.startswith('mgpu: "mgpu.dev/00000" is not a key of mgpu; ')
