"""What a container asks for, in whichever vendor's vocabulary it is written."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

Qos = Literal["online", "offline"]


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Memory over all cards of the container: mib (exact) or units (GiB units of a card); or percent, of each
    card.
    """

    mib: int | None = None
    units: int | None = None
    percent: int | None = None

    def __post_init__(self) -> None:
        if [self.mib, self.units, self.percent].count(None) != 2:
            raise ValueError("memory is either in MiB, in units or in percent")


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The container that asks. container: its name in the pod's manifest; without a pod, the container id."""

    pod: str | None = None
    namespace: str | None = None
    container: str = ""


@dataclass(frozen=True, kw_only=True)
class Request:
    """One container's request. Totals are over its cards and divide evenly by count.

    policy: None adopts the card's, else the node's. count: None means every candidate, only with whole_cards.
    uuids: these cards and no others. candidates: indices and UUIDs that NVIDIA_VISIBLE_DEVICES leaves, empty
    for all. placed: UUIDs that the cluster's scheduler chose, empty where none did. core_percent: 100 is one
    card; None asks for no quota. whole_cards: no other container on the cards; then memory and core_percent
    are None. reclaimable: its memory gives way to online containers.
    """

    qos: Qos
    policy: str | None
    count: int | None
    uuids: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()
    placed: tuple[str, ...] = ()
    memory: Memory | None = None
    core_percent: int | None = None
    whole_cards: bool = False
    reclaimable: bool = False
    identity: Identity = Identity()

    def to_json(self) -> dict[str, Any]:
        """As schemas/request.schema.json describes it."""
        memory = None
        if self.memory is not None:
            memory = {name: value for name, value in asdict(self.memory).items() if value is not None}
        return {
            **asdict(self),
            "uuids": list(self.uuids),
            "candidates": list(self.candidates),
            "placed": list(self.placed),
            "memory": memory,
        }

    @classmethod
    def from_json(cls, obj: object) -> "Request":
        """The inverse of to_json; Refusal if obj is not what the schema describes."""
        from oci_specs import schemas

        fields = schemas.validate("request", obj)
        memory = fields["memory"]
        return cls(
            qos=fields["qos"],
            policy=fields["policy"],
            count=fields["count"],
            uuids=tuple(fields["uuids"]),
            candidates=tuple(fields["candidates"]),
            placed=tuple(fields["placed"]),
            memory=None if memory is None else Memory(**memory),
            core_percent=fields["core_percent"],
            whole_cards=fields["whole_cards"],
            reclaimable=fields["reclaimable"],
            identity=Identity(**fields["identity"]),
        )
