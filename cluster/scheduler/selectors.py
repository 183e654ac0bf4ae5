"""Nodes that a pod's own selector and required affinity leave (k8s.io/api/core/v1: NodeSelector).

Only for what is learned of pods: the stock scheduler has filtered by them before the extender is asked.
"""

from collections.abc import Mapping
from typing import Any

from cluster.scheduler.members import items, members


def is_selective(spec: Mapping[str, Any]) -> bool:
    return bool(spec.get("nodeSelector")) or bool(_terms(spec))


def selects(spec: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a node with these labels is left. What cannot be read leaves it."""
    if any(labels.get(name) != value for name, value in members(spec, "nodeSelector").items()):
        return False
    terms = _terms(spec)
    return not terms or any(
        all(_holds(each, labels) for each in items(term, "matchExpressions")) for term in terms
    )


def prefers(spec: Mapping[str, Any]) -> bool:
    """Whether the pod states preferences among nodes, which other plugins of the stock scheduler score."""
    affinity = members(spec, "affinity")
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    return any(
        items(members(affinity, kind), preferred)
        for kind in ("nodeAffinity", "podAffinity", "podAntiAffinity")
    ) or any(
        each.get("whenUnsatisfiable") == "ScheduleAnyway"
        for each in items(spec, "topologySpreadConstraints")
    )


def _terms(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    affinity = members(members(spec, "affinity"), "nodeAffinity")
    return items(members(affinity, "requiredDuringSchedulingIgnoredDuringExecution"), "nodeSelectorTerms")


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value = labels.get(str(expression.get("key")))
    values = expression.get("values") or []
    match expression.get("operator"):
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return True
