"""What a cluster makes of a workload's manifest before a node's container engine hears of it. Pure.

The kubelet passes pod annotations and labels on as they are, and knows nothing of the resources of vendors:
their admission webhook copies the workload's annotations to its pods, and their device plugin answers the
allocation with annotations for the container.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from oci_specs import vocabulary

DEFAULT_NAMESPACE = "default"
_KEYS = frozenset(key.name for key in vocabulary.KEYS if key.source == vocabulary.ANNOTATION)


@dataclass(frozen=True, kw_only=True)
class ContainerSpec:
    """One container of a pod. command: all words, empty for the image's own; annotations: a device
    plugin's."""

    name: str
    image: str
    command: tuple[str, ...] = ()
    working_dir: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PodSpec:
    """One pod as the kubelet of its node is told of it."""

    name: str
    containers: tuple[ContainerSpec, ...]
    namespace: str = DEFAULT_NAMESPACE
    host_users: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


def pods(workload: Mapping[str, Any]) -> list[PodSpec]:
    """The pods of a Deployment or a Job. Names end in the replica's number, where a cluster puts random
    letters.
    """
    counts = {"Deployment": "replicas", "Job": "parallelism"}
    kind = workload["kind"]
    if kind not in counts:
        raise ValueError(f"a {kind} is neither {' nor '.join(counts)}")
    spec, metadata = workload["spec"], workload["metadata"]
    template = spec["template"]
    own = template.get("metadata", {})
    labels = own.get("labels", {})
    annotations = {**metadata.get("annotations", {}), **own.get("annotations", {})}
    # ACK declares the number of cards in a label of the pod.
    told = {name: value for name, value in labels.items() if name in _KEYS}
    return [
        PodSpec(
            name=f"{metadata['name']}-{number}",
            namespace=metadata.get("namespace", DEFAULT_NAMESPACE),
            labels=labels,
            annotations=annotations,
            containers=tuple(_container(one, told) for one in template["spec"]["containers"]),
        )
        for number in range(spec.get(counts[kind], 1))
    ]


def _container(manifest: Mapping[str, Any], told: Mapping[str, str]) -> ContainerSpec:
    limits = manifest.get("resources", {}).get("limits", {})
    asked = {name: str(value) for name, value in limits.items() if name in _KEYS}
    return ContainerSpec(
        name=manifest["name"],
        image=manifest["image"],
        command=(*manifest.get("command", ()), *manifest.get("args", ())),
        working_dir=manifest.get("workingDir", ""),
        env={one["name"]: one["value"] for one in manifest.get("env", ())},
        # Only a container that asks for some of a GPU is allocated any.
        annotations={**told, **asked} if asked else {},
    )
