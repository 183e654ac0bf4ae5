"""From the grants on each card to the percentage of it that the scheduler is told for each container."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from oci_specs.request import Qos
from placement.room import LEAST_PART_PERCENT


class Part(NamedTuple):
    """One container on one card. core_percent None: no quota of its own, or none that its policy heeds."""

    tenant: int
    qos: Qos
    core_percent: int | None


def percents(cards: Iterable[Sequence[Part]]) -> dict[int, int]:
    """Each container's percentage of each of its cards, from all containers on each card.

    The engine knows one percentage for a container: where the cards differ it is the least, so that no class
    comes to more than a card on any of them.
    """
    found: dict[int, int] = {}
    for parts in cards:
        for tenant, percent in _on_card(parts).items():
            found[tenant] = min(percent, found.get(tenant, percent))
    return found


def _on_card(parts: Sequence[Part]) -> dict[int, int]:
    return {
        tenant: percent
        for qos in ("online", "offline")
        for tenant, percent in _of_class([part for part in parts if part.qos == qos]).items()
    }


def _of_class(parts: Sequence[Part]) -> dict[int, int]:
    """A container with a quota has that; the others share equally what the quotas leave, and each has the
    least at least.

    Where idle time is shared, admission takes containers without a quota also beside quotas of a whole
    card. The scheduler wants 1 to 100 each and 100 together at most: the largest quotas then lend them
    that percent.
    """
    left = 100 - sum(part.core_percent or 0 for part in parts)
    sharing = sum(part.core_percent is None for part in parts)
    equal = max(LEAST_PART_PERCENT, left // sharing) if sharing else 0
    found = {part.tenant: equal if part.core_percent is None else part.core_percent for part in parts}
    while sum(found.values()) > 100:
        found[max(found, key=found.__getitem__)] -= 1
    return found
