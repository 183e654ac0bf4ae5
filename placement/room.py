"""How much of one card a request needs, and whether the card has it."""

from dataclasses import dataclass
from enum import IntEnum

from oci_specs import units
from oci_specs.forms import MIN_MIB
from oci_specs.parse import MIN_MIB_PER_CARD_OF_SEVERAL
from oci_specs.request import Qos, Request
from oci_specs.vocabulary import QUOTAS_BIND
from placement.cards import CardShare, CardState
from placement.rules import Rules

# Under fixed-share, a container without a quota of its own is left at least this much.
LEAST_PART_PERCENT = 1


class Lack(IntEnum):
    """Why a card does not fit, in the order of the checks: a later reason means a closer fit."""

    POLICY = 1
    CARD_SIZE = 2
    LEAST_MEMORY = 3
    CONTAINERS = 4
    OCCUPIED = 5
    MEMORY = 6
    CORE = 7


@dataclass(frozen=True)
class Verdict:
    """For one card: the container's share of it, its policy, and what is lacking, if anything."""

    card: CardState
    share: CardShare
    policy: str
    lack: Lack | None


def examine(request: Request, card: CardState, count: int, rules: Rules) -> Verdict:
    """Whether `card` can be one of the `count` cards of the request."""
    asked = asked_mib(request, card, count)
    core = (
        100
        if request.whole_cards
        else None
        if request.core_percent is None
        else request.core_percent // count
    )
    # Core of whole cards beside memory: the memory is an upper bound that the card clamps.
    memory = min(asked, card.memory_mib) if core == 100 else asked
    policy = card.policy or request.policy or rules.policy
    share = CardShare(
        index=card.index,
        minor=card.minor,
        uuid=card.uuid,
        name=card.name,
        memory_mib=memory,
        core_percent=core,
    )
    return Verdict(card, share, policy, _lack(request, card, share, policy, count, rules))


def asked_mib(request: Request, card: CardState, count: int) -> int:
    """Memory that the request asks of this card, in MiB and unclamped; all of it for whole cards."""
    if request.memory is None:
        percent = 100 if request.core_percent is None else request.core_percent // count
        return card.memory_mib * percent // 100
    if request.memory.mib is not None:
        return request.memory.mib // count
    if request.memory.percent is not None:
        return card.memory_mib * request.memory.percent // 100
    assert request.memory.units is not None
    per_card = request.memory.units // count
    if units.gib_units(card.memory_mib) == 0:
        return per_card * units.MIB_PER_GIB
    return units.gib_units_to_mib(per_card, card.memory_mib)


def least_mib(count: int) -> int:
    """The least memory that a container can have on each of `count` cards, in MiB."""
    return MIN_MIB if count == 1 else MIN_MIB_PER_CARD_OF_SEVERAL


def free_mib(request: Request, card: CardState) -> int:
    return card.free_for(request.qos, reclaimable=request.reclaimable)


def free_core(card: CardState, qos: Qos, policy: str) -> int:
    """Percent of the card that a further container of the class can have as its quota.

    Each of those without one keeps its least part.
    """
    least = least_part_percent(policy)
    return max(0, 100 - sum(tenant.core_percent or least for tenant in card.tenants if tenant.qos == qos))


def least_part_percent(policy: str) -> int:
    """What quotas have to leave to each container without one: something, where they bind."""
    return LEAST_PART_PERCENT if policy in QUOTAS_BIND else 0


def _lack(
    request: Request, card: CardState, share: CardShare, policy: str, count: int, rules: Rules
) -> Lack | None:
    core = share.core_percent
    if core is None:
        core = least_part_percent(policy)
    checks = (
        (Lack.POLICY, request.policy is not None and policy != request.policy),
        (Lack.CARD_SIZE, share.memory_mib > card.memory_mib),
        (Lack.LEAST_MEMORY, share.memory_mib < least_mib(count)),
        (Lack.CONTAINERS, len(card.tenants) >= rules.max_containers_per_card),
        (Lack.OCCUPIED, request.whole_cards and bool(card.tenants)),
        (Lack.MEMORY, share.memory_mib > free_mib(request, card)),
        (Lack.CORE, core > free_core(card, request.qos, policy)),
    )
    return next((lack for lack, lacking in checks if lacking), None)
