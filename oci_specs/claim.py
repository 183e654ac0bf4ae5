"""A prepared claim of Kubernetes' dynamic resource allocation: what its containers may have of which cards.

mgpud is told of claims by the verb `claims` (schemas/claim.schema.json). A container names the one that it
uses in a variable that a CDI device brings. The variable is a name and proves nothing.
"""

from dataclasses import asdict, dataclass
from typing import Any

from oci_specs import vocabulary
from oci_specs.request import Qos


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A pod that the claim is reserved for, in the claim's own namespace."""

    name: str
    uid: str


@dataclass(frozen=True, kw_only=True)
class ClaimedCard:
    """What was allocated of one card. memory_mib None: all of the card; core_percent None: no quota."""

    uuid: str
    memory_mib: int | None = None
    core_percent: int | None = None


@dataclass(frozen=True, kw_only=True)
class ClaimedRequest:
    """One request of a claim. containers: how many share it at a time, each with an equal part."""

    name: str
    qos: Qos = "online"
    policy: str | None = None
    containers: int = 1
    cards: tuple[ClaimedCard, ...]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """uid is the claim's name for good: one of the same name may follow it."""

    uid: str
    namespace: str
    name: str
    pods: tuple[Pod, ...]
    requests: tuple[ClaimedRequest, ...]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    def variable(self, number: int) -> tuple[str, str]:
        """Name and value of the variable that stands for the request of that number.

        The name differs for each, since a container may use several and CDI sets each variable once.
        """
        name = f"{vocabulary.CLAIM_ENV_PREFIX}{self.uid.replace('-', '').upper()}_{number}"
        return name, self.value(self.requests[number])

    def value(self, request: ClaimedRequest) -> str:
        return f"{self.namespace}/{self.name}/{self.uid}/{request.name}"

    def to_json(self) -> dict[str, Any]:
        """As schemas/claim.schema.json describes it."""
        return {
            **asdict(self),
            "pods": [asdict(pod) for pod in self.pods],
            "requests": [
                {**asdict(request), "cards": [asdict(card) for card in request.cards]}
                for request in self.requests
            ],
        }

    @classmethod
    def from_json(cls, obj: Any) -> "Claim":
        """The inverse of to_json, of what the schema allows; KeyError or TypeError for what it does not."""
        return cls(
            uid=obj["uid"],
            namespace=obj["namespace"],
            name=obj["name"],
            pods=tuple(Pod(**pod) for pod in obj["pods"]),
            requests=tuple(
                ClaimedRequest(
                    **{**request, "cards": tuple(ClaimedCard(**card) for card in request["cards"])}
                )
                for request in obj["requests"]
            ),
        )
