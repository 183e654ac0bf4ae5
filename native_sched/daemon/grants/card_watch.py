"""Follows the node's cards: those that come, that fall off the bus, and that MIG makes and removes.

The containers of a lost card hear of it from the driver; nothing new is put on it. It is all asked of the
driver, every two seconds: a card that falls off the bus and a change of MIG cause no message. A message only
has it asked at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from native_sched.daemon.grants.served import Served
from native_sched.daemon.log import LOG, Log
from native_sched.daemon.node.inventory import CardInfo, Found, numbered

LOOK_S = 2.0
# Messages about a card come in bursts.
SETTLE_S = 0.2


def _facts(card: CardInfo) -> tuple[object, ...]:
    """The members by which the engine knows it."""
    return card.minor, card.gpu_id, card.memory_mib, card.instance


class CardWatch:
    """Keeps the node's cards as the driver has them.

    lost: indices of cards that get no new container. find: asks the driver; it may take as long as that does.
    add: has the engine serve a card; returns it with what was measured of it; OSError. changed: called when a
    card was added. renewed: called once the driver was loaded anew, of which this mgpud has nothing.
    """

    def __init__(
        self,
        served: Served,
        version: str,
        find: Callable[[], Found],
        add: Callable[[CardInfo], tuple[CardInfo, dict[str, list[int]]]],
        *,
        changed: Callable[[], None] = lambda: None,
        renewed: Callable[[], None] = lambda: None,
        log: Log = LOG,
    ) -> None:
        self.lost: set[int] = set()
        self._served = served
        self._version = version
        self._find = find
        self._add = add
        self._changed = changed
        self._renewed = renewed
        self._log = log
        # By index, which is one card's for as long as this mgpud lives.
        self._had = {card.index: card for card in served.cards}
        self._not_added: set[str] = set()
        self._hinted = asyncio.Event()

    def hint(self) -> None:
        """Something was said about a card: the driver is asked at once."""
        self._hinted.set()

    async def run(self) -> None:
        """For ever."""
        while True:
            await self.look()
            # wait_for() loses a cancellation that comes with the event.
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._hinted.wait()
                await asyncio.sleep(SETTLE_S)
            self._hinted.clear()

    async def look(self) -> None:
        try:
            found = await asyncio.to_thread(self._find)
        except Exception as error:  # the driver is gone, which others tell of
            self._log.warning("cards-not-seen", why=error)
            return
        if found.version != self._version or not self._served.engine.driver_alive:
            self._log.warning(
                "driver-loaded-anew", driver_version=found.version, what="the next mgpud serves it"
            )
            self._renewed()
            return
        here = {card.uuid: card for card in found.cards if card.uuid not in found.lost}
        for card in tuple(self._served.cards):
            self._compare(card, here)
        listed = {card.uuid for card in self._served.cards}
        known = {
            card.uuid: index
            for index, card in self._had.items()
            if card.uuid not in here or _facts(here[card.uuid]) == _facts(card)
        }
        for card in numbered(here.values(), known, used=self._had):
            if card.uuid not in listed:
                await self._come(card)

    def _compare(self, card: CardInfo, here: dict[str, CardInfo]) -> None:
        """One of the cards beside what the driver has of it."""
        containers = sum(grant.has_card(card.index) for grant in self._served.grants)
        seen = here.get(card.uuid)
        if seen is not None and _facts(seen) == _facts(card):
            if card.index in self.lost and not containers:
                self.lost.discard(card.index)
                self._log.info("card-back", card=card.index)
            return
        if card.index not in self.lost:
            self.lost.add(card.index)
            self._log.error(
                "card-lost", card=card.index, containers=containers, what="nothing new is put on it"
            )
        # MIG makes another card of the same GPU, or takes one away. A lost GPU is shown as long as it is.
        of_mig = card.instance is not None or any(other.minor == card.minor for other in here.values())
        if of_mig and not containers:
            self._served.cards.remove(card)
            self.lost.discard(card.index)
            self._log.info("card-removed", card=card.index)

    async def _come(self, card: CardInfo) -> None:
        measured: dict[str, list[int]] = {}
        if card.index in self._had:
            card = self._had[card.index]
        else:
            try:
                card, measured = await asyncio.to_thread(self._add, card)
            except OSError as error:
                if card.uuid not in self._not_added:
                    self._not_added.add(card.uuid)
                    self._log.error("card-not-added", card=card.index, uuid=card.uuid, why=error.strerror)
                return
        self._had[card.index] = card
        if measured:
            self._served.node.note(contexts={**self._served.node.now.contexts, **measured})
        self._served.cards.append(card)
        self._served.cards.sort(key=lambda each: each.index)
        self._log.info("card-added", card=card.index, uuid=card.uuid, memory_mib=card.memory_mib)
        self._changed()
