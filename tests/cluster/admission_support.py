"""The cases of admission as manifests, and what it makes of them."""

import base64
import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cluster.admission import review, webhooks
from cluster.admission.change import Patch
from cluster.admission.names import Settings
from tests.cluster import evaluator

Object = dict[str, Any]

CASES = Path(__file__).parent / "admission_cases.yaml"
_GROUPS = {"Pod": "", "Job": "batch", "CronJob": "batch"}
_OURS = {"spec": {"runtimeClassName": "mgpu", "schedulerName": "mgpu-scheduler"}}


@dataclass(frozen=True)
class Case:
    """old: None for a new object. after: the object as it should become, not looked at where it is
    refused.
    """

    name: str
    manifest: Object
    old: Object | None
    after: Object
    refused: str
    warned: list[str]


@dataclass(frozen=True)
class Outcome:
    after: Object
    refused: str
    warned: list[str]


def cases() -> list[Case]:
    return [_case(row) for row in yaml.safe_load(CASES.read_text())]


def _case(row: Mapping[str, Any]) -> Case:
    made = manifest(row)
    old = manifest({**row, **row["old"]}) if "old" in row else None
    after = merged(made, _OURS) if row.get("ours") else made
    return Case(
        row["case"],
        made,
        old,
        merged(after, row.get("becomes", {})),
        row.get("refused", ""),
        row.get("warned", []),
    )


def manifest(row: Mapping[str, Any]) -> Object:
    """The object that a case's members describe."""
    kind = row.get("kind", "Pod")
    containers = row.get("containers", [{"name": "main", "limits": row.get("limits", {})}])
    spec = {"containers": [_container(each) for each in containers], **row.get("spec", {})}
    for name, member in (("inits", "initContainers"), ("ephemerals", "ephemeralContainers")):
        if name in row:
            spec[member] = [_container(each) for each in row[name]]
    pod: Object = {"metadata": _metadata(row, "annotations", "labels"), "spec": spec}
    if kind == "Pod":
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            **pod,
            "metadata": {"name": "p", "namespace": "default", **pod["metadata"]},
        }
    metadata = {"name": "w", "namespace": "default", **row.get("metadata", {})}
    if row.get("own"):
        metadata["annotations"] = row["own"]
    spec = {"template": pod}
    return {
        "apiVersion": f"{_GROUPS.get(kind, 'apps')}/v1",
        "kind": kind,
        "metadata": metadata,
        "spec": {"jobTemplate": {"spec": spec}} if kind == "CronJob" else spec,
    }


def _metadata(row: Mapping[str, Any], *members: str) -> Object:
    return {member: row[member] for member in members if row.get(member)}


def _container(row: Mapping[str, Any]) -> Object:
    limits = {"resources": {"limits": row["limits"]}} if row.get("limits") else {}
    env = (
        {"env": [{"name": name, "value": value} for name, value in row["env"].items()]}
        if "env" in row
        else {}
    )
    return {"name": row["name"], "image": "nginx", **limits, **env}


def merged(manifest: Any, change: Any) -> Any:
    """A JSON merge patch (RFC 7386); numbers as names are places in a list."""
    if isinstance(manifest, list):
        return [merged(each, change.get(place, {})) for place, each in enumerate(manifest)]
    if not isinstance(change, Mapping):
        return change
    made = copy.deepcopy(manifest) if isinstance(manifest, dict) else {}
    for name, each in change.items():
        if each is None:
            made.pop(name, None)
        else:
            made[name] = merged(made.get(name), each)
    return made


def typed(manifests: list[Object]) -> list[Object]:
    """Manifests as the API server writes them."""
    return [_after(outcome) for outcome in evaluator.review([], [{"object": each} for each in manifests])]


def _after(outcome: Object) -> Object:
    assert "error" not in outcome, outcome["error"]
    after: Object = outcome["object"]
    return after


def asked(reviews: list[tuple[Object, Object | None]], kubernetes: str) -> list[bool]:
    """Whether the API server asks the validating webhook about each, by the webhook's own condition."""
    [configuration] = [
        each for each in webhooks.objects(Settings()) if each["kind"] == "ValidatingWebhookConfiguration"
    ]
    always = [
        {
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": hook["name"]},
            "spec": {
                "failurePolicy": hook["failurePolicy"],
                "matchConstraints": {"resourceRules": hook["rules"]},
                "matchConditions": hook["matchConditions"],
                "validations": [{"expression": "false", "messageExpression": "'asked'"}],
            },
        }
        for hook in configuration["webhooks"]
    ]
    found = evaluator.review(always, [{"object": each, "old": old} for each, old in reviews], kubernetes)
    assert not [each["error"] for each in found if "error" in each]
    return [each.get("refused") == "asked" for each in found]


def outcomes(reviews: list[tuple[Object, Object | None]]) -> list[Outcome]:
    """Patches are applied by the API server's own library."""
    settings = Settings()
    came = typed([each for each, _ in reviews])
    had = iter(typed([old for _, old in reviews if old is not None]))
    olds = [None if old is None else next(had) for _, old in reviews]
    requests = [request(each, old) for each, old in zip(came, olds, strict=True)]
    answers = [review.mutate(each, settings)["response"] for each in requests]
    assert all(answer["allowed"] for answer in answers)
    changed = evaluator.review(
        [],
        [
            {"object": each, "old": old, "patches": patch(answer)}
            for each, old, answer in zip(came, olds, answers, strict=True)
        ],
    )
    made = []
    for after, old in zip((_after(each) for each in changed), olds, strict=True):
        answer = review.validate(request(after, old), settings)["response"]
        refused = "" if answer["allowed"] else answer["status"]["message"]
        made.append(Outcome(after, refused, answer.get("warnings", [])))
    return made


def patch(answer: Mapping[str, Any]) -> Any:
    return json.loads(base64.b64decode(answer["patch"])) if "patch" in answer else None


def request(manifest: Object, old: Object | None) -> bytes:
    """An AdmissionReview, as an API server sends it."""
    group, _, version = manifest["apiVersion"].rpartition("/")
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": group, "version": version, "kind": manifest["kind"]},
        "operation": "CREATE" if old is None else "UPDATE",
        "namespace": "default",
        "object": manifest,
        "oldObject": old,
    }
    return json.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    ).encode()


def misspelt() -> Object:
    return manifest({"annotations": {"mgpu.dev/memory": "4096"}})


def large_pod(size_bytes: int) -> Object:
    """A pod that asks, of about so many bytes: annotations, containers and their environment."""
    count = size_bytes // 410
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "namespace": "default",
            "annotations": {f"other.example/{place}": "x" * 80 for place in range(count)},
            "labels": {f"other.example/{place}": "x" * 60 for place in range(count)},
        },
        "spec": {
            "containers": [
                {
                    "name": f"c{place}",
                    "image": "nginx",
                    "env": [{"name": "X", "value": "x" * 100}],
                    "resources": {"limits": {"mgpu.dev/memory-mib": "4096"}},
                }
                for place in range(count)
            ]
        },
    }


def patched(manifest: Object, patch: Patch) -> Object:
    """With what is added; what is taken away is refused nowhere."""
    made = copy.deepcopy(manifest)
    for operation in patch:
        *above, last = [each.replace("~1", "/") for each in operation["path"].split("/")[1:]]
        at = made
        for name in above:
            at = at[int(name)] if isinstance(at, list) else at[name]
        at[last] = operation["value"]
    return made
