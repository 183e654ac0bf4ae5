"""Follows the node's cards: those that come, that fall off the bus, and that MIG makes and removes; and lets
go of those that are lost or drained.

The containers of a lost card hear of it from the driver; nothing new is put on it. It is all asked of the
driver, every two seconds: a card that falls off the bus and a change of MIG cause no message. A message only
has it asked at once.

A drained card without containers is left alone: neither the engine nor NVML has anything of it open, so that
it can be reset. Where that is so of all cards the driver is not asked at all, and can be unloaded.
"""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import asdict

from native_sched.daemon.grants.closed import Closed
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

    closed: those that get no new container. find: asks the driver for all but the GPUs with these gpu_ids; it
    may take as long as that does. add: has the engine serve a card, or serve it again; returns it with what
    was measured of it; OSError. changed: called when a card was added. renewed: called once the driver was
    loaded anew, or may have been: of that driver this mgpud has nothing.
    """

    def __init__(
        self,
        served: Served,
        version: str,
        find: Callable[[Collection[int]], Found],
        add: Callable[[CardInfo], tuple[CardInfo, dict[str, list[int]]]],
        *,
        changed: Callable[[], None] = lambda: None,
        renewed: Callable[[], None] = lambda: None,
        log: Log = LOG,
    ) -> None:
        drained = served.node.now.drained
        self.closed = Closed(drained={card.index for card in served.cards if card.uuid in drained})
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
        self._anew = False

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

    def drain(self, cards: Collection[int], *, drained: bool) -> None:
        """The operator's word, which outlives this mgpud; OSError, with nothing changed.

        MIG instances of one GPU are drained together: it is reset as a whole.
        """
        closed, listed = self.closed, self._served.cards
        gpus = {card.gpu_id for card in listed if card.index in cards}
        meant = {card.index for card in listed if card.gpu_id in gpus}
        after = closed.drained | meant if drained else closed.drained - meant
        self._served.node.save(drained={card.uuid: asdict(card) for card in listed if card.index in after})
        # The driver may be another one by now: the next mgpud opens it afresh.
        self._anew = self._anew or (after < closed.drained and not any(map(self._is_asked, listed)))
        for card in sorted(after ^ closed.drained):
            self._log.info("card-drained" if drained else "card-undrained", card=card)
        closed.drained.clear()
        closed.drained.update(after)
        self.hint()

    def _containers(self, card: CardInfo) -> int:
        return sum(grant.has_card(card.index) for grant in self._served.grants)

    def _is_asked(self, card: CardInfo) -> bool:
        return card.index not in self.closed.drained or self._containers(card) > 0

    async def look(self) -> None:
        if self._anew:
            self._renewed()
            return
        asked = [card for card in self._served.cards if self._is_asked(card)]
        alone = [card for card in self._served.cards if card not in asked]
        for card in alone:
            await self._release(card)
        if alone and not asked:
            return
        without = {card.gpu_id for card in alone} - {card.gpu_id for card in asked}
        try:
            found = await asyncio.to_thread(self._find, without)
        except Exception as error:  # the driver is gone, which others tell of
            self._log.warning("cards-not-seen", why=error)
            return
        if found.version != self._version or not self._served.engine.driver_alive:
            self._log.warning(
                "driver-loaded-anew", driver_version=found.version, what="the next mgpud serves it"
            )
            self._renewed()
            return
        left = {card.uuid for card in alone}
        here = {card.uuid: card for card in found.cards if card.uuid not in found.lost | left}
        for card in asked:
            await self._compare(card, here)
        listed = {card.uuid for card in self._served.cards}
        known = {
            card.uuid: index
            for index, card in self._had.items()
            if card.uuid not in here or _facts(here[card.uuid]) == _facts(card)
        }
        for card in numbered(here.values(), known, used=self._had):
            if card.uuid not in listed:
                await self._come(card)

    async def _compare(self, card: CardInfo, here: dict[str, CardInfo]) -> None:
        """One of the cards beside what the driver has of it."""
        closed, seen = self.closed, here.get(card.uuid)
        if seen is not None and _facts(seen) == _facts(card):
            if card.index in closed and not self._containers(card) and card.index not in closed.drained:
                await self._take_back(card)
            return
        if card.index not in closed.lost:
            closed.lost.add(card.index)
            self._log.error(
                "card-lost",
                card=card.index,
                containers=self._containers(card),
                what="nothing new is put on it",
            )
        # One that the driver has under other facts may serve its containers as before.
        if seen is None or not self._containers(card):
            await self._release(card)
        # MIG makes another card of the same GPU, or takes one away. A lost GPU is shown as long as it is.
        of_mig = card.instance is not None or any(other.minor == card.minor for other in here.values())
        if of_mig and not self._containers(card):
            self._served.cards.remove(card)
            closed.lost.discard(card.index)
            self._log.info("card-removed", card=card.index)

    async def _release(self, card: CardInfo) -> None:
        """Twice is as once."""
        released = self.closed.released
        if card.index in released:
            return
        released[card.index] = False
        await asyncio.to_thread(self._served.engine.release_card, card.index)
        released[card.index] = True
        self._log.info("card-released", card=card.index, what="mgpud has nothing of it open")

    async def _take_back(self, card: CardInfo) -> None:
        if card.index in self.closed.released:
            taken = await self._added(card)
            if taken is None:
                return
            self._served.cards[self._served.cards.index(card)] = taken
            del self.closed.released[card.index]
        self.closed.lost.discard(card.index)
        self._log.info("card-back", card=card.index)

    async def _added(self, card: CardInfo) -> CardInfo | None:
        """As the engine serves it from now on; None where it does not."""
        try:
            card, measured = await asyncio.to_thread(self._add, card)
        except OSError as error:
            if card.uuid not in self._not_added:
                self._not_added.add(card.uuid)
                self._log.error("card-not-added", card=card.index, uuid=card.uuid, why=error.strerror)
            return None
        self._not_added.discard(card.uuid)
        self._had[card.index] = card
        if measured:
            self._served.node.note(contexts={**self._served.node.now.contexts, **measured})
        return card

    async def _come(self, card: CardInfo) -> None:
        taken = await self._added(self._had.get(card.index, card))
        if taken is None:
            return
        self.closed.released.pop(taken.index, None)
        self._served.cards.append(taken)
        self._served.cards.sort(key=lambda each: each.index)
        self._log.info("card-added", card=taken.index, uuid=taken.uuid, memory_mib=taken.memory_mib)
        self._changed()
