"""The choice of the container to evict, and of the one to restore and when: pure, in the caller's time (ns).

Eviction takes the least that is enough. Restoration takes the oldest, once there was room for all of it for a
time that doubles with each eviction that follows a restoration closely, so that a container is not moved back
and forth.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

# The longest hold, beside the first.
HOLD_MOST = 64
# A container that ran for so many of its holds before the next eviction begins with the first hold again.
RAN_HOLDS = 8


@dataclass(frozen=True, kw_only=True)
class Card:
    """One card. left_bytes: what no container has taken or been promised. free_bytes: what none holds.
    demanded_bytes: asked for by online calls that wait, 0 where none does. unreported_bytes: what the driver
    may not have of what none holds.
    """

    left_bytes: int
    free_bytes: int
    demanded_bytes: int = 0
    unreported_bytes: int = 0

    @property
    def lacking_bytes(self) -> int:
        """The least that has to be evicted; a card that refuses memory it hardly has lacks some."""
        if not self.demanded_bytes:
            return 0
        beyond = self.demanded_bytes - self.free_bytes
        return max(beyond, 1 if beyond + self.unreported_bytes > 0 else 0)


@dataclass(frozen=True, kw_only=True)
class Tenant:
    """One container: what it holds by card, or held until it was evicted. since_ns: when it was evicted; of
    one that runs, when it was restored, 0 for never. kept: its memory is lent to nobody while it is away.
    """

    tenant: int
    bytes: Mapping[int, int]
    since_ns: int = 0
    kept: bool = False


def victim(cards: Mapping[int, Card], running: Iterable[Tenant]) -> Tenant | None:
    """The container to evict next; None where no call waits or none has anything there.

    One that covers what lacks on a card, with the fewest bytes to move; else the one that has most there. Of
    equal ones, that which has run for longest.
    """
    candidates = list(running)
    for index, card in cards.items():
        there = [one for one in candidates if one.bytes.get(index)]
        if card.lacking_bytes and there:
            return min(there, key=lambda one: _loss(one, index, card.lacking_bytes))
    return None


def _loss(one: Tenant, card: int, lacking_bytes: int) -> tuple[bool, int, int, int]:
    covers = one.bytes[card] >= lacking_bytes
    size = sum(one.bytes.values()) if covers else -one.bytes[card]
    return not covers, size, one.since_ns, one.tenant


def returning(
    cards: Mapping[int, Card], evicted: Iterable[Tenant]
) -> tuple[Tenant | None, Mapping[int, Card]]:
    """Picks an evicted container that does not give way and that there is room for; else the cards where
    online demands the room. Such containers wait for no hold: their memory is their own.
    """
    demanding = dict(cards)
    for one in evicted:
        lacking = {}
        for index, size in one.bytes.items():
            card = cards[index]
            room = card.free_bytes if one.kept else min(card.left_bytes, card.free_bytes)
            if size > room:
                lacking[index] = size - room
        if not lacking:
            return one, cards
        for index, size in lacking.items() if not one.kept else ():
            card = demanding[index]
            demanding[index] = replace(card, demanded_bytes=card.demanded_bytes + card.free_bytes + size)
    return None, demanding


class Restorations:
    """Remembers for how long there was room for each evicted container.

    back_ns, waits: of each at the last look, when it comes back if room stays, or why it does not yet.
    """

    def __init__(self, hold_ns: int) -> None:
        self._hold_ns = hold_ns
        self._room_since: dict[int, int] = {}
        self._holds: dict[int, int] = {}
        self.back_ns: dict[int, int] = {}
        self.waits: dict[int, str] = {}

    def evicted(self, one: Tenant, now_ns: int) -> None:
        """It is evicted now; since_ns as of one that runs."""
        hold = self._holds.get(one.tenant, 0)
        ran_long = now_ns - one.since_ns > RAN_HOLDS * max(hold, self._hold_ns)
        if not one.since_ns or ran_long or not hold:
            self._holds[one.tenant] = self._hold_ns
        else:
            self._holds[one.tenant] = min(2 * hold, HOLD_MOST * self._hold_ns)

    def hold_ns(self, tenant: int) -> int:
        return self._holds.get(tenant, self._hold_ns)

    def next(
        self, now_ns: int, cards: Mapping[int, Card], evicted: Iterable[Tenant]
    ) -> tuple[Tenant | None, int | None]:
        """The container to restore now, and else when to ask again (None: when something has changed)."""
        waiting = sorted(evicted, key=lambda one: (one.since_ns, one.tenant))
        self._forget({one.tenant for one in waiting})
        self.back_ns.clear()
        self.waits.clear()
        before: set[int] = set()
        again: int | None = None
        for one in waiting:
            # An older one on any of its cards comes first, so that a large one is not passed by for ever.
            lacks = (
                _lacks(one, cards)
                if before.isdisjoint(one.bytes)
                else "one that was evicted earlier comes first"
            )
            if not lacks:
                due = self._room_since.setdefault(one.tenant, now_ns) + self.hold_ns(one.tenant)
                if due <= now_ns:
                    del self._room_since[one.tenant]
                    return one, None
                self.back_ns[one.tenant] = due
                again = due if again is None else min(again, due)
            else:
                self._room_since.pop(one.tenant, None)
                held_s = self.hold_ns(one.tenant) / 1e9
                self.waits[one.tenant] = f"{lacks}; {held_s:g} s after there is room for it"
            before |= set(one.bytes)
        return None, again

    def _forget(self, waiting: set[int]) -> None:
        for tenant in self._room_since.keys() - waiting:
            del self._room_since[tenant]

    def ended(self, tenants: set[int]) -> None:
        """Only these are left."""
        for tenant in self._holds.keys() - tenants:
            del self._holds[tenant]


def _lacks(one: Tenant, cards: Mapping[int, Card]) -> str:
    """Why it cannot come back now; empty where it can."""
    for index, size in one.bytes.items():
        card = cards[index]
        if card.demanded_bytes:
            return f"online work waits for memory of GPU {index}"
        room = min(card.left_bytes, card.free_bytes)
        if room < size:
            return f"GPU {index} has {max(0, room) >> 20} of {size >> 20} MiB for it"
    return ""
