"""Where a kind keeps its pod: the same rules hold for a pod and for the template of a workload."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast


@dataclass(frozen=True)
class Shape:
    """Kinds that keep their pod in one place.

    name: of its webhooks. path: of the pod's metadata and spec below the object, () for a pod. resources: by
    API group and with the operations at which they are looked at; a Job's template can only be written once.
    The first ones are those that are made.
    """

    name: str
    path: tuple[str, ...]
    resources: tuple[tuple[str, str, tuple[str, ...]], ...]

    def pod(self, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
        """The member that has a pod's metadata and spec; empty where there is none."""
        at: Any = manifest
        for member in self.path:
            at = members(at, member)
        return cast(Mapping[str, Any], at)

    def cel(self, root: str) -> str:
        """The same place in CEL, below object or oldObject."""
        return ".".join((root, *self.path))


_EVERY = ("CREATE", "UPDATE")
POD = Shape("pods", (), (("", "pods", _EVERY), ("", "pods/ephemeralcontainers", ("UPDATE",))))
WORKLOAD = Shape(
    "workloads",
    ("spec", "template"),
    (
        ("apps", "deployments", _EVERY),
        ("apps", "statefulsets", _EVERY),
        ("apps", "daemonsets", _EVERY),
        ("apps", "replicasets", _EVERY),
        ("batch", "jobs", ("CREATE",)),
    ),
)
CRON_JOB = Shape("cronjobs", ("spec", "jobTemplate", "spec", "template"), (("batch", "cronjobs", _EVERY),))
SHAPES = (POD, WORKLOAD, CRON_JOB)

_KINDS = {
    ("", "Pod"): POD,
    ("apps", "Deployment"): WORKLOAD,
    ("apps", "StatefulSet"): WORKLOAD,
    ("apps", "DaemonSet"): WORKLOAD,
    ("apps", "ReplicaSet"): WORKLOAD,
    ("batch", "Job"): WORKLOAD,
    ("batch", "CronJob"): CRON_JOB,
}


def shape_of(group: str, kind: str) -> Shape | None:
    return _KINDS.get((group, kind))


def members(manifest: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A member that is an object; empty where it is not there or null."""
    return manifest.get(name) or {}


def items(manifest: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """A member that is a list of objects; empty where it is not there or null."""
    return manifest.get(name) or []


def annotations_of(manifest: Mapping[str, Any]) -> Mapping[str, str]:
    return members(members(manifest, "metadata"), "annotations")


def labels_of(manifest: Mapping[str, Any]) -> Mapping[str, str]:
    return members(members(manifest, "metadata"), "labels")


def containers_of(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return items(members(pod, "spec"), "containers")


def every_container_of(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Init containers, and so sidecars, last. Ephemeral containers have no limits."""
    return containers_of(pod) + items(members(pod, "spec"), "initContainers")


def ephemeral_of(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return items(members(pod, "spec"), "ephemeralContainers")


def variables_of(container: Mapping[str, Any]) -> list[str]:
    return [str(each.get("name", "")) for each in items(container, "env")]


def limits_of(container: Mapping[str, Any]) -> Mapping[str, Any]:
    return members(members(container, "resources"), "limits")


# Members that are read of a manifest: a text, an object with these members, or a list of these. Any may
# be missing or null.
_TEXTS: Any = {"*": ""}
_METADATA: Any = {"annotations": _TEXTS, "labels": _TEXTS, "ownerReferences": [{}]}
_CONTAINERS: Any = [{"name": "", "resources": {"limits": {}}, "env": [{"name": ""}]}]
_POD: Any = {
    "metadata": _METADATA,
    "spec": {
        "containers": _CONTAINERS,
        "initContainers": _CONTAINERS,
        "ephemeralContainers": _CONTAINERS,
        "runtimeClassName": "",
        "schedulerName": "",
    },
}


def fits(manifest: Any, shape: Shape) -> bool:
    """Whether the rest of this package can read the manifest; None for one that is not there fits as well."""
    form = _POD
    for member in reversed(shape.path):
        form = {member: form}
    return _fits(manifest, {"metadata": _METADATA, "kind": ""}) and _fits(manifest, form)


def _fits(value: Any, form: Any) -> bool:
    if value is None:
        return True
    if not isinstance(value, type(form)):
        return False
    if isinstance(form, list):
        return all(each is not None and _fits(each, form[0]) for each in value)
    if isinstance(form, dict):
        # None among texts would be read as a text.
        if form == _TEXTS:
            return all(isinstance(each, str) for each in value.values())
        return all(_fits(value.get(name), each) for name, each in form.items())
    return True
