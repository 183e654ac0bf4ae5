"""The cards of one node for each container of a pod, by mgpud's own rules."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations

from cluster.scheduler.pods import Container, Placed
from oci_specs.refusal import Refusal
from oci_specs.request import Request
from placement.cards import CardState, Placement, Tenant
from placement.place import place
from placement.rules import Rules

# Ways that are tried before a pod of several containers counts as one that does not fit: all those of two
# containers over sixteen different cards.
_TRIES = 16 * 16


def assign(containers: Sequence[Container], cards: Sequence[CardState], rules: Rules) -> Placed:
    """Cards for every container, in the order of CUDA; Refusal where they do not all fit.

    A container alone gets the cards that mgpud would choose; of several each gets others where that is the
    only way for all of them. They are placed in the manifest's order, in which mgpud will admit them: the
    first on a card sets its policy.
    """
    # A container that does not fit alone does not fit beside others.
    alone = [place(each.request, cards, rules) for each in containers]
    if len(containers) == 1:
        return {containers[0].name: tuple(share.uuid for share in alone[0].cards)}
    found = _search(containers, list(cards), rules, [_TRIES])
    if found is None:
        raise _refusal(containers, list(cards), rules)
    return found


def _search(
    containers: Sequence[Container], cards: list[CardState], rules: Rules, tries: list[int]
) -> dict[str, tuple[str, ...]] | None:
    if not containers:
        return {}
    first, *others = containers
    for placed in _ways(first.request, cards, rules, tries, alone=not others):
        rest = _search(others, occupied(cards, placed, first), rules, tries)
        if rest is not None:
            return {first.name: tuple(share.uuid for share in placed.cards), **rest}
    return None


def _ways(
    request: Request, cards: list[CardState], rules: Rules, tries: list[int], *, alone: bool
) -> Iterator[Placement]:
    """mgpud's own choice, then, where other containers have to fit as well, every other choice of cards."""
    try:
        chosen = place(request, cards, rules)
    except Refusal:
        return
    yield chosen
    if alone:
        return
    taken = {share.uuid for share in chosen.cards}
    minors = len({card.minor for card in cards}) < len(cards)
    seen = {_alike((card for card in cards if card.uuid in taken), minors=minors)}
    for some in combinations(cards, len(taken)):
        alike = _alike(some, minors=minors)
        if alike in seen:
            continue
        seen.add(alike)
        tries[0] -= 1
        if tries[0] <= 0:
            return
        try:
            yield place(request, some, rules)
        except Refusal:
            continue


def _alike(cards: Iterable[CardState], *, minors: bool) -> tuple[tuple[object, ...], ...]:
    """The key of some cards: others with the same key are no other way. minors: whether GPUs have
    instances.
    """
    return tuple(
        sorted(
            (
                card.memory_mib,
                card.policy or "",
                -1 if card.online_mib is None else card.online_mib,
                card.minor if minors else 0,
                *sorted(
                    (one.qos, one.memory_mib, one.core_percent or -1, one.reclaimable)
                    for one in card.tenants
                ),
            )
            for card in cards
        )
    )


def _refusal(containers: Sequence[Container], cards: list[CardState], rules: Rules) -> Refusal:
    """Of the first container that does not fit beside those before it."""
    for container in containers:
        try:
            placed = place(container.request, cards, rules)
        except Refusal as refusal:
            return refusal
        cards = occupied(cards, placed, container)
    return Refusal(
        "pod-too-large",
        f"{len(containers)} containers fit one by one, and not together",
        "ask for less, or wait until a container ends",
    )


def occupied(cards: Sequence[CardState], placed: Placement, container: Container) -> list[CardState]:
    """The cards with the container on those that it got."""
    shares = {share.uuid: share for share in placed.cards}
    return [
        replace(
            card,
            policy=placed.policy,
            tenants=(
                *card.tenants,
                Tenant(
                    container_id=container.name,
                    qos=container.request.qos,
                    memory_mib=shares[card.uuid].memory_mib,
                    core_percent=shares[card.uuid].core_percent,
                    reclaimable=container.request.reclaimable and card.lends,
                    whole=container.request.whole_cards,
                ),
            ),
        )
        if card.uuid in shares
        else card
        for card in cards
    ]
