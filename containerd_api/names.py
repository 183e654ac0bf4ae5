"""A container's name for people, from the labels that its maker has put on it through containerd."""

from collections.abc import Mapping

# The surest first; in each the labels of the parts, from the outermost to the container's own.
_LABELS = (
    ("io.kubernetes.pod.namespace", "io.kubernetes.pod.name", "io.kubernetes.container.name"),
    ("nerdctl/namespace", "nerdctl/name"),
    ("com.docker.compose.project", "com.docker.compose.service"),
)


def name(labels: Mapping[str, str]) -> str | None:
    """Such as NAMESPACE/POD/CONTAINER; None where the labels tell none."""
    for parts in _LABELS:
        if labels.get(parts[-1]):
            return "/".join(labels[part] for part in parts if labels.get(part))
    return None
