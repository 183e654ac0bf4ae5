"""Admission as objects of the API: what calls the server, the server, and what it may."""

import json
from itertools import groupby
from typing import Any

from cluster.admission import names
from cluster.admission.names import Settings
from cluster.admission.shapes import POD, SHAPES, Shape

Object = dict[str, Any]

NAME = "mgpu-admission"
NAMESPACE = "mgpu-system"
IMAGE = "mgpu:0.1.0"
PORT = 8443
# Both configurations: the server writes its certificate authority into them, so that they are known by name.
CONFIGURATION = "mgpu"
# The API server waits so long for an answer, and refuses without one.
PATIENCE_S = 5


def objects(settings: Settings) -> list[Object]:
    return [
        _configuration("Mutating", "/mutate", settings),
        _configuration("Validating", "/validate", settings),
        *_rights(),
        _service(),
        _disruption_budget(),
        _deployment(settings),
    ]


def _metadata(name: str, namespace: str | None = NAMESPACE) -> Object:
    labels = {"app.kubernetes.io/name": "mgpu", "app.kubernetes.io/component": "admission"}
    return {"name": name, **({"namespace": namespace} if namespace else {}), "labels": labels}


def _configuration(kind: str, path: str, settings: Settings) -> Object:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": _metadata(CONFIGURATION, None),
        "webhooks": [_webhook(kind, path, shape, settings) for shape in SHAPES],
    }


def _webhook(kind: str, path: str, shape: Shape, settings: Settings) -> Object:
    rules = _rules(shape)
    if kind == "Mutating" and shape is POD:
        # What is added to a pod later is judged and not changed.
        rules = [{**rules[0], "operations": ["CREATE"]}]
    return {
        "name": f"{shape.name}.mgpu.dev",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "timeoutSeconds": PATIENCE_S,
        "namespaceSelector": _namespaces(),
        "matchConditions": [{"name": "ours", "expression": _concerns(shape, settings)}],
        "rules": rules,
        "clientConfig": {"service": {"name": NAME, "namespace": NAMESPACE, "path": path, "port": 443}},
        **({"reinvocationPolicy": "IfNeeded"} if kind == "Mutating" else {}),
    }


def _rules(shape: Shape) -> list[Object]:
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


def _namespaces() -> Object:
    """A selector of the namespaces that are judged."""
    label = "kubernetes.io/metadata.name"
    return {
        "matchExpressions": [{"key": label, "operator": "NotIn", "values": [*names.EXCLUDED_NAMESPACES]}]
    }


def _concerns(shape: Shape, settings: Settings) -> str:
    """In CEL: whether the manifest has a name of ours. Other pods start while the server is away."""

    families = names.FAMILIES + (names.HAMI if settings.hami else ())

    def begins(name: str, families: tuple[str, ...]) -> str:
        # JSON's escapes are CEL's.
        return " || ".join(f"{name}.startsWith({json.dumps(family)})" for family in families)

    def named(of: str) -> str:
        return f"{of}.exists(k, {begins('k', families)})"

    def member(of: str, *path: str) -> str:
        return f"{of}.?{'.?'.join(path)}.orValue({{}})"

    pod = shape.cel("object")
    said = [(pod, "annotations"), (pod, "labels"), *([] if shape is POD else [("object", "annotations")])]
    every = f"({pod}.spec.containers + {pod}.spec.?initContainers.orValue([]))"
    limited = f"{every}.exists(c, {named(member('c', 'resources', 'limits'))})"
    lists = [every, f"{pod}.spec.?ephemeralContainers.orValue([])"]
    is_ours = f"e.name in {json.dumps(names.VARIABLES)} || {begins('e.name', (names.CLAIM_VARIABLES,))}"
    varied = [f"{each}.exists(c, c.?env.orValue([]).exists(e, {is_ours}))" for each in lists]
    # A name that mgpu alone writes may not be taken away.
    had = named(member(shape.cel("oldObject"), "metadata", "annotations"))
    taken = f"(oldObject != null && {had})"
    return " || ".join(
        [*(named(member(of, "metadata", which)) for of, which in said), limited, *varied, taken]
    )


def _rights() -> list[Object]:
    group = "admissionregistration.k8s.io"
    configurations = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"]
    subjects = [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}]
    role = "rbac.authorization.k8s.io"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata(NAME)},
        {
            "apiVersion": f"{role}/v1",
            "kind": "ClusterRole",
            "metadata": _metadata(NAME, None),
            "rules": [
                {
                    "apiGroups": [group],
                    "resources": configurations,
                    "resourceNames": [CONFIGURATION],
                    "verbs": ["get", "update"],
                }
            ],
        },
        {
            "apiVersion": f"{role}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": _metadata(NAME, None),
            "roleRef": {"apiGroup": role, "kind": "ClusterRole", "name": NAME},
            "subjects": subjects,
        },
        {
            "apiVersion": f"{role}/v1",
            "kind": "Role",
            "metadata": _metadata(NAME),
            "rules": [
                # A name cannot be demanded of what is created.
                {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
                {
                    "apiGroups": [""],
                    "resources": ["secrets"],
                    "resourceNames": [NAME],
                    "verbs": ["get", "update"],
                },
            ],
        },
        {
            "apiVersion": f"{role}/v1",
            "kind": "RoleBinding",
            "metadata": _metadata(NAME),
            "roleRef": {"apiGroup": role, "kind": "Role", "name": NAME},
            "subjects": subjects,
        },
    ]


def _service() -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(NAME),
        "spec": {
            "selector": _metadata(NAME)["labels"],
            "ports": [{"name": "https", "port": 443, "targetPort": PORT}],
        },
    }


def _disruption_budget() -> Object:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(NAME),
        "spec": {"minAvailable": 1, "selector": {"matchLabels": _metadata(NAME)["labels"]}},
    }


def _deployment(settings: Settings) -> Object:
    labels = _metadata(NAME)["labels"]
    probe = {"path": "/readyz", "port": PORT, "scheme": "HTTPS"}
    options = [f"--scheduler={settings.scheduler}"]
    options += ["--hami"] if settings.hami else []
    options += ["--aliyun-mib"] if settings.aliyun_mib else []
    container = {
        "name": "admission",
        "image": IMAGE,
        "command": ["/opt/mgpu/bin/mgpu-admission", *options],
        "ports": [{"name": "https", "containerPort": PORT}],
        "readinessProbe": {"httpGet": probe, "periodSeconds": 5},
        # A node that just came up has much to do beside this, and a server that is ended then begins again.
        "startupProbe": {"httpGet": probe, "periodSeconds": 2, "failureThreshold": 90},
        "livenessProbe": {
            "httpGet": {**probe, "path": "/livez"},
            "periodSeconds": 10,
            "failureThreshold": 3,
        },
        "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "runAsUser": 65534,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": labels},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(NAME),
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "serviceAccountName": NAME,
                    "priorityClassName": "system-cluster-critical",
                    "topologySpreadConstraints": [spread],
                    "containers": [container],
                },
            },
        },
    }
