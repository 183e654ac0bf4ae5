"""Who a container is: pod, namespace and name as the engine's annotations tell, else the container id.

Neither containerd nor CRI-O tells the position of a container in its pod. Imports nothing heavy: the create
path asks `is_sandbox` on every container start.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from oci_specs.request import Identity

# For each member the annotations that carry it, the surest first. CRI-O's own ContainerName is left out: it
# is the name that CRI-O generates (k8s_app_pod_namespace_…), not the one in the pod's manifest.
_POD = ("io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name", "io.kubernetes.cri-o.KubeName")
_NAMESPACE = (
    "io.kubernetes.cri.sandbox-namespace",
    "io.kubernetes.pod.namespace",
    "io.kubernetes.cri-o.Namespace",
)
_CONTAINER = ("io.kubernetes.cri.container-name", "io.kubernetes.container.name")
# CRI-O's only word for a container that no kubelet made: {"name": …}.
_CRIO_METADATA = "io.kubernetes.cri-o.Metadata"
_POD_UID = ("io.kubernetes.cri.sandbox-uid", "io.kubernetes.pod.uid")
_SANDBOX = ("io.kubernetes.cri.container-type", "io.kubernetes.cri-o.ContainerType")

ANNOTATIONS = frozenset((*_POD, *_NAMESPACE, *_POD_UID, *_CONTAINER, *_SANDBOX, _CRIO_METADATA))


def is_sandbox(annotations: Mapping[str, str]) -> bool:
    """Whether this is a pod's own (pause) container, which gets nothing whatever the pod asks for.

    Engines that pass pod annotations through write their own marker last, but not each other's: any marker
    that says something else makes it a container like others.
    """
    kinds = [annotations[name] for name in _SANDBOX if name in annotations]
    return bool(kinds) and all(value == "sandbox" for value in kinds)


def identify(annotations: Mapping[str, str], container_id: str) -> Identity:
    """Pod, namespace and container name; outside Kubernetes None, None and container_id."""
    from oci_specs.request import Identity

    return Identity(
        pod=_first(_POD, annotations),
        namespace=_first(_NAMESPACE, annotations),
        container=_first(_CONTAINER, annotations) or _crio_name(annotations) or container_id,
    )


def is_of_pod(annotations: Mapping[str, str]) -> bool:
    """Whether Kubernetes has the container made. podman's pods have none of these annotations."""
    return any(annotations.get(name) for name in _POD + _NAMESPACE + _POD_UID)


def is_pod(annotations: Mapping[str, str], *, namespace: str, name: str, uid: str) -> bool:
    """Whether the container is certainly of that pod: all that tell of one say so.

    A pod can bring another engine's annotations, but its own engine's are written last. Not every version of
    an engine tells the uid.
    """

    def told(keys: tuple[str, ...]) -> set[str]:
        return {annotations[key] for key in keys if key in annotations}

    return told(_NAMESPACE) == {namespace} and told(_POD) == {name} and told(_POD_UID) <= {uid}


def _first(names: tuple[str, ...], annotations: Mapping[str, str]) -> str | None:
    return next((annotations[name] for name in names if annotations.get(name)), None)


def _crio_name(annotations: Mapping[str, str]) -> str | None:
    import json

    try:
        name = json.loads(annotations[_CRIO_METADATA])["name"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    return name if isinstance(name, str) else None
