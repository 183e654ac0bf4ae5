"""The kinds of objects that mgpu reads and writes, as data."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """group: "" for the core group. plural: as in paths. namespaced: whether objects live in a namespace.

    subresource: the last part of the path of one that is only ever written below another object, which is of
    the core group, whatever its own is.
    """

    group: str
    version: str
    name: str
    plural: str
    namespaced: bool
    subresource: str = ""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


NODE = Kind("", "v1", "Node", "nodes", namespaced=False)
POD = Kind("", "v1", "Pod", "pods", namespaced=True)
BINDING = Kind("", "v1", "Binding", "pods", namespaced=True, subresource="binding")
SECRET = Kind("", "v1", "Secret", "secrets", namespaced=True)
EVICTION = Kind("policy", "v1", "Eviction", "pods", namespaced=True, subresource="eviction")
EVENT = Kind("events.k8s.io", "v1", "Event", "events", namespaced=True)
LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases", namespaced=True)
RESOURCE_SLICE = Kind("resource.k8s.io", "v1", "ResourceSlice", "resourceslices", namespaced=False)
RESOURCE_CLAIM = Kind("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", namespaced=True)
MUTATING_WEBHOOK = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
    namespaced=False,
)
VALIDATING_WEBHOOK = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    namespaced=False,
)
