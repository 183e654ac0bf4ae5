"""Which share of which cards a container gets by the claims that it names: each card asked for by its UUID,
as if that had been written in annotations, and all of them under one class and one policy.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from native_sched.daemon.grants.claims import Named
from oci_specs.claim import ClaimedCard
from oci_specs.forms import MIN_MIB
from oci_specs.refusal import Refusal
from oci_specs.request import Memory, Qos, Request
from placement.cards import CardShare, CardState, Placement
from placement.place import place as place_one
from placement.refusals import same_gpu
from placement.rules import Rules

Stated = TypeVar("Stated", Qos, str)


@dataclass(frozen=True)
class Part:
    """Of one card. memory_mib None: the whole card, and no other container on it."""

    memory_mib: int | None
    core_percent: int | None

    def __add__(self, other: "Part") -> "Part":
        if self.memory_mib is None or other.memory_mib is None:
            return WHOLE
        cores = [core for core in (self.core_percent, other.core_percent) if core is not None]
        return Part(self.memory_mib + other.memory_mib, sum(cores) if cores else None)


WHOLE = Part(None, None)


def place(named: Sequence[Named], cards: Sequence[CardState], rules: Rules) -> tuple[Qos, bool, Placement]:
    """Class, whether the cards are whole, and the shares by ascending index; Refusal.

    What two requests have of one card is added up.
    """
    qos = _one("class", [(one, one.request.qos) for one in named]) or "online"
    policy = _one("policy", [(one, one.request.policy) for one in named if one.request.policy is not None])
    sizes = {card.uuid: card.memory_mib for card in cards}
    parts: dict[str, Part] = {}
    for one in named:
        for card in one.request.cards:
            part = _part(one, card, sizes.get(card.uuid, 0))
            parts[card.uuid] = parts[card.uuid] + part if card.uuid in parts else part
    shares: list[CardShare] = []
    policies: dict[str, CardShare] = {}
    for uuid, part in parts.items():
        request = Request(
            qos=qos,
            policy=policy,
            count=1,
            uuids=(uuid,),
            memory=None if part.memory_mib is None else Memory(mib=part.memory_mib),
            core_percent=part.core_percent,
            whole_cards=part.memory_mib is None,
        )
        placed = place_one(request, cards, rules)
        shares += placed.cards
        policies[placed.policy] = placed.cards[0]
    if len(policies) > 1:
        runs = ", ".join(f"GPU {share.index} runs {name}" for name, share in policies.items())
        raise Refusal(
            "policy-conflict",
            f"{len(shares)} GPUs claimed, which must run one policy, but {runs}",
            "name the policy in the claim's parameters, or set it with mgpu policy",
        )
    gpus = len({share.minor for share in shares})
    if gpus < len(shares):
        raise same_gpu(len(shares), gpus)
    shares.sort(key=lambda share: share.index)
    whole = all(part.memory_mib is None for part in parts.values())
    return qos, whole, Placement(cards=tuple(shares), policy=next(iter(policies)))


def _one(what: str, stated: Sequence[tuple[Named, Stated]]) -> Stated | None:
    """What all of them state; None where none does."""
    for named, value in stated[1:]:
        first, other = stated[0]
        if value != other:
            raise Refusal(
                "claims-disagree",
                f"claim {first.claim} asks for {what} {other} and claim {named.claim} for {value}",
                "let all that a container uses say the same",
            )
    return stated[0][1] if stated else None


def _part(named: Named, card: ClaimedCard, size_mib: int) -> Part:
    """An equal part for each container, rounded down."""
    containers = named.request.containers
    if card.memory_mib is None and containers == 1:
        return WHOLE
    memory_mib = (size_mib if card.memory_mib is None else card.memory_mib) // containers
    core = 100 if card.memory_mib is None else card.core_percent
    part = Part(memory_mib, None if core is None else core // containers)
    if memory_mib < MIN_MIB or part.core_percent == 0:
        raise Refusal(
            "claim-too-small",
            f"claim {named.claim} leaves each of {containers} containers {memory_mib} MiB and core {part.core_percent}",
            f"claim at least {MIN_MIB} MiB, and core 1 if any, for each of them",
        )
    return part
