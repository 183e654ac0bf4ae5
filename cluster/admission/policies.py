"""The policies as objects of the API: the API server judges by them, and no server of ours has to run.

Expressions are written for 1.34, which takes of CEL what 1.33 knew (apiserver/pkg/cel/environment): no index
of a list but that of transformList, no lists in lists made flat.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

from cluster.admission import denials, mutations, names, warnings
from cluster.admission.names import Settings
from cluster.admission.shapes import POD, SHAPES, Shape
from cluster.admission.variables import Variables

Object = dict[str, Any]
GROUP = "admissionregistration.k8s.io"
# Where mutating policies are stable, and where they are behind a gate.
VERSIONS = ("v1", "v1beta1")


def mutating(settings: Settings, version: str) -> list[Object]:
    """The policies that change, with their bindings."""
    return [each for shape in SHAPES for each in _bound(_mutating(settings, shape, version), {})]


def denying(settings: Settings, shape: Shape) -> list[Object]:
    """The policy that refuses, stable since 1.30."""
    return _bound(_denying(settings, shape), {"validationActions": ["Deny"]})


def warning(settings: Settings) -> list[Object]:
    return _bound(_warning(settings), {"validationActions": ["Warn"]})


def namespaces() -> Object:
    """A selector of the namespaces that are judged."""
    label = "kubernetes.io/metadata.name"
    return {
        "matchExpressions": [{"key": label, "operator": "NotIn", "values": [*names.EXCLUDED_NAMESPACES]}]
    }


def rules(shape: Shape) -> list[Object]:
    return [
        {
            "apiGroups": [group],
            "apiVersions": ["v1"],
            "operations": [*operations],
            "resources": [resource for _, resource, _ in same],
            "scope": "Namespaced",
        }
        for (group, operations), same in groupby(shape.resources, key=lambda each: (each[0], each[2]))
    ]


def of_new(shape: Shape) -> list[Object]:
    """Rules for what is made alone, not for what is added to it later."""
    return [{**rules(shape)[0], "operations": ["CREATE"]}]


def _policy(kind: str, version: str, name: str, shape: Shape, variables: Variables) -> Object:
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": kind,
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "mgpu"}},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "matchPolicy": "Equivalent",
                "namespaceSelector": namespaces(),
                "resourceRules": rules(shape),
            },
            "variables": [{"name": name, "expression": each} for name, each in variables.items()],
        },
    }


def _bound(policy: Object, more: Object) -> list[Object]:
    metadata = policy["metadata"]
    return [
        policy,
        {
            "apiVersion": policy["apiVersion"],
            "kind": f"{policy['kind']}Binding",
            "metadata": metadata,
            "spec": {"policyName": metadata["name"], **more},
        },
    ]


def _mutating(settings: Settings, shape: Shape, version: str) -> Object:
    made = mutations.pod if shape is POD else mutations.workload
    variables, patches = made(settings, shape)
    policy = _policy("MutatingAdmissionPolicy", version, f"mgpu-{shape.name}", shape, variables)
    condition = mutations.pod_condition(settings) if shape is POD else mutations.workload_condition()
    policy["spec"]["matchConditions"] = [{"name": "ours", "expression": condition}]
    # Later additions of another plugin, such as a sidecar, are judged as well; what is there already stays.
    policy["spec"]["reinvocationPolicy"] = "IfNeeded"
    policy["spec"]["mutations"] = [
        {"patchType": "JSONPatch", "jsonPatch": {"expression": patch}} for patch in patches
    ]
    if shape is POD:
        policy["spec"]["matchConstraints"]["resourceRules"] = of_new(shape)
    return policy


def _denying(settings: Settings, shape: Shape) -> Object:
    variables = denials.pod(settings, shape)
    policy = _policy("ValidatingAdmissionPolicy", "v1", f"mgpu-{shape.name}", shape, variables)
    policy["spec"]["validations"] = [
        {"expression": "size(variables.refused) == 0", "messageExpression": "variables.refused[0]"}
    ]
    return policy


def _warning(settings: Settings) -> Object:
    variables, lists = warnings.in_cel(settings)
    policy = _policy("ValidatingAdmissionPolicy", "v1", "mgpu-warnings", POD, variables)
    policy["spec"]["validations"] = [
        {"expression": f"size({each}) == 0", "messageExpression": f"({each})[0]"} for each in lists
    ]
    policy["spec"]["matchConstraints"]["resourceRules"] = of_new(POD)
    return policy
