"""Which cards of one node each container of a pod gets, by mgpud's own rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from cluster.scheduler.pods import Container, Placed
from oci_specs.refusal import Refusal
from oci_specs.request import Request
from oci_specs.units import MIB_PER_GIB
from placement.cards import CardState, Placement, Tenant
from placement.place import place
from placement.rules import Rules

# How many cards are tried for a container before a pod of several counts as one that does not fit: all ways of
# three containers over sixteen cards.
_TRIES = 16 * 16 * 16


def assign(containers: Sequence[Container], cards: Sequence[CardState], rules: Rules) -> Placed:
    """Cards for every container, in the order of CUDA; Refusal where they do not all fit.

    The first container's cards are those that mgpud would choose; a pod of several containers gets others where
    that is the only way for all of them.
    """
    requests = {each.name: each.request for each in containers}
    # The largest first: the others fit in what it leaves more often than the other way round.
    order = sorted(containers, key=lambda each: _size(each.request), reverse=True)
    tries = [_TRIES]
    found = _search(order, list(cards), rules, tries)
    if found is None:
        raise _refusal(order, list(cards), rules)
    return {name: found[name] for name in requests}


def _search(
    order: Sequence[Container], cards: list[CardState], rules: Rules, tries: list[int]
) -> dict[str, tuple[str, ...]] | None:
    if not order:
        return {}
    first, *others = order
    for placed in _ways(first.request, cards, rules, alone=not others):
        if tries[0] == 0:
            return None
        tries[0] -= 1
        rest = _search(others, occupied(cards, placed, first), rules, tries)
        if rest is not None:
            return {first.name: tuple(share.uuid for share in placed.cards), **rest}
    return None


def _ways(request: Request, cards: list[CardState], rules: Rules, *, alone: bool) -> Iterator[Placement]:
    """mgpud's own choice, then, where other containers have to fit as well, every other card."""
    try:
        chosen = place(request, cards, rules)
    except Refusal:
        return
    yield chosen
    if alone:
        return
    if request.count != 1:
        # Several cards: every way to leave out one of those chosen.
        for share in chosen.cards:
            left = [card for card in cards if card.uuid != share.uuid]
            try:
                yield place(request, left, rules)
            except Refusal:
                continue
        return
    for card in cards:
        if card.uuid == chosen.cards[0].uuid:
            continue
        try:
            yield place(request, [card], rules)
        except Refusal:
            continue


def _refusal(order: Sequence[Container], cards: list[CardState], rules: Rules) -> Refusal:
    """Of the first container that does not fit beside those before it."""
    for container in order:
        try:
            placed = place(container.request, cards, rules)
        except Refusal as refusal:
            return refusal
        cards = occupied(cards, placed, container)
    return Refusal(
        "pod-too-large",
        f"{len(order)} containers fit one by one, and not together",
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
                ),
            ),
        )
        if card.uuid in shares
        else card
        for card in cards
    ]


def _size(request: Request) -> tuple[int, int, int]:
    """Cards, core and memory, in the order in which they are hard to find."""
    memory = request.memory
    asked = 0 if memory is None else memory.mib or (memory.units or 0) * MIB_PER_GIB
    core = 100 if request.whole_cards else request.core_percent or 0
    return (request.count or len(request.candidates), core, asked)
