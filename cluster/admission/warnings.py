"""Warnings to the user of what is let through: rules in both forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cluster.admission import asked, names, shapes, variables
from cluster.admission.cel import quoted as cel_quoted
from cluster.admission.cel import text
from cluster.admission.names import Settings
from cluster.admission.shapes import POD
from oci_specs.refusal import quoted

_RUNTIME = "mgpu: runtimeClassName is |, and unless its handler is mgpu's nothing enforces the limits"
_SCHEDULER = "mgpu: schedulerName is |, so that no card is chosen before the pod starts, and what fits none fails there"


def warnings(settings: Settings, pod: Mapping[str, Any]) -> list[str]:
    """A line for each thing about a new pod, as it is after admission's changes, that its user may
    not want.
    """
    if names.MIRROR_POD in shapes.annotations_of(pod) or not asked.asks(settings, pod):
        return []
    spec = shapes.members(pod, "spec")
    runtime, scheduler = spec.get("runtimeClassName", ""), spec.get("schedulerName", "")
    return [
        *([_RUNTIME.replace("|", quoted(runtime))] if runtime != names.RUNTIME_CLASS else []),
        *([_SCHEDULER.replace("|", quoted(scheduler))] if scheduler != settings.scheduler else []),
    ]


def in_cel(settings: Settings) -> tuple[variables.Variables, list[str]]:
    """The same: variables, and an expression of a list of lines for each of the two."""
    is_judged = f"!({text(names.MIRROR_POD)} in variables.annotations) && ({variables.asks(settings, POD)})"
    lists = []
    for member, right, line in (
        ("runtimeClassName", names.RUNTIME_CLASS, _RUNTIME),
        ("schedulerName", settings.scheduler, _SCHEDULER),
    ):
        value = f'object.spec.?{member}.orValue("")'
        before, after = line.split("|")
        said = f"{text(before)} + {cel_quoted(value)} + {text(after)}"
        lists.append(f"variables.isJudged && {value} != {text(right)} ? [{said}] : []")
    return {**variables.of_pod(POD), "isJudged": is_judged}, lists
