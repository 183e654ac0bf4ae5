"""Warnings to the user of what is admitted all the same."""

from collections.abc import Mapping
from typing import Any

from cluster.admission import asked, hami, names, shapes
from cluster.admission.names import Settings
from oci_specs.refusal import quoted


def warnings(settings: Settings, pod: Mapping[str, Any]) -> list[str]:
    """A line for each thing about a new pod, as it is after admission's changes, that its user may
    not want.
    """
    if names.MIRROR_POD in shapes.annotations_of(pod) or not asked.asks(settings, pod):
        return []
    return [*hami.warnings(pod), *_elsewhere(settings, pod)]


def _elsewhere(settings: Settings, pod: Mapping[str, Any]) -> list[str]:
    spec = shapes.members(pod, "spec")
    return [
        f"mgpu: {member} is {quoted(value)}, {consequence}"
        for member, right, consequence in (
            (
                "runtimeClassName",
                names.RUNTIME_CLASS,
                "and unless its handler is mgpu's nothing enforces the limits",
            ),
            (
                "schedulerName",
                settings.scheduler,
                "so that no GPU is chosen before the pod starts, and what fits none fails there",
            ),
        )
        if (value := spec.get(member, "")) != right
    ]
