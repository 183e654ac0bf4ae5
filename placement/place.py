"""The cards for a request: a pure function of the request, the cards and the node's rules."""

from collections.abc import Callable, Sequence

from oci_specs.refusal import Refusal
from oci_specs.request import Qos, Request
from placement import room
from placement.cards import CardShare, CardState, Placement, Tenant
from placement.refusals import (
    ambiguous,
    no_room,
    placed_elsewhere,
    policies_differ,
    same_gpu,
    too_few,
    unknown_card,
)
from placement.rules import Rules

__all__ = ["CardShare", "CardState", "Placement", "Tenant", "place"]


def place(request: Request, cards: Sequence[CardState], rules: Rules) -> Placement:
    """Room for the request on as many cards as it asks for, all under one policy.

    The same arguments always give the same cards: ties go to the lower index. Raises a Refusal that says how
    much was asked, what there is, and what to do; for a conflict of policies it names the container that set
    the card's.
    """
    try:
        return _place(request, cards, rules)
    except Refusal as refusal:
        if not request.placed:
            raise
        raise placed_elsewhere(request, refusal) from refusal


def _place(request: Request, cards: Sequence[CardState], rules: Rules) -> Placement:
    candidates = _candidates(request, cards)
    count = len(candidates) if request.count is None else request.count
    if count > len(candidates) or not candidates:
        raise too_few(request, count, len(candidates), len(cards))
    verdicts = [room.examine(request, card, count, rules) for card in candidates]
    fitting = [verdict for verdict in verdicts if verdict.lack is None]
    if len(fitting) < count:
        raise no_room(request, count, verdicts, rules)
    gpus = len({verdict.card.minor for verdict in fitting})
    if gpus < count:
        raise same_gpu(count, gpus)
    rank = _STRATEGIES[rules.placement]
    # The candidates came by index and the sort is stable.
    fitting.sort(key=lambda verdict: rank(verdict.card, request.qos))
    by_policy: dict[str, list[room.Verdict]] = {}
    for verdict in fitting:
        group = by_policy.setdefault(verdict.policy, [])
        # Of MIG instances of one GPU a container gets one: which of two a program subscribes to is not ours
        # to see.
        if all(verdict.card.minor != other.card.minor for other in group):
            group.append(verdict)
    for policy, group in by_policy.items():
        if len(group) >= count:
            shares = sorted((verdict.share for verdict in group[:count]), key=lambda share: share.index)
            return Placement(cards=tuple(shares), policy=policy)
    raise policies_differ(count, fitting)


def _candidates(request: Request, cards: Sequence[CardState]) -> list[CardState]:
    """The cards that the request names, or all, by ascending index."""
    allowed = list(cards)
    for names in (request.candidates, request.uuids, request.placed):
        if names:
            # Named cards are looked up among all of the node: a wrong name is told apart from a card left
            # out.
            chosen = {card_named(name, cards).index for name in names}
            allowed = [card for card in allowed if card.index in chosen]
    return sorted(allowed, key=lambda card: card.index)


def card_named(name: str, cards: Sequence[CardState]) -> CardState:
    """The card with this index, or a UUID that begins so in either case, as NVIDIA's runtime reads it."""
    if name.isdigit():
        found = [card for card in cards if card.index == int(name)]
    else:
        wanted = name.casefold()
        found = [card for card in cards if card.uuid.casefold() == wanted] or [
            card for card in cards if card.uuid.casefold().startswith(wanted)
        ]
    if not found:
        raise unknown_card(name, cards)
    if len(found) > 1:
        raise ambiguous(name, found)
    return found[0]


_Rank = Callable[[CardState, Qos], tuple[int, ...]]


def _default(card: CardState, qos: Qos) -> tuple[int, ...]:
    if qos == "online":
        return card.count("online"), len(card.tenants), -card.free_mib
    return not card.count("online"), card.free_mib


def _binpack(card: CardState, qos: Qos) -> tuple[int, ...]:
    return (card.free_mib,)


def _spread(card: CardState, qos: Qos) -> tuple[int, ...]:
    return len(card.tenants), -card.free_mib


def _separate(card: CardState, qos: Qos) -> tuple[int, ...]:
    if qos == "online":
        return card.count("offline") > 0, card.count("online"), -card.free_mib
    return card.count("online") > 0, card.free_mib


# The lowest rank is chosen. Among empty cards of different sizes, packing takes the smallest that fits.
_STRATEGIES: dict[str, _Rank] = {
    "default": _default,
    "binpack": _binpack,
    "spread": _spread,
    "separate": _separate,
}
