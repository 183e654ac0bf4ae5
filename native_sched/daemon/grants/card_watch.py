"""Sees a card fall off the bus. Its containers hear of it from the driver; what is left to do is to say so,
and no other is put on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable

from native_sched.daemon.grants.grants import Grant
from native_sched.daemon.log import LOG, Log

LOOK_S = 2.0


class LostCards:
    """Indices of cards that are lost. A card that is lost stays so until the driver is loaded anew."""

    def __init__(self, log: Log = LOG) -> None:
        self._log = log
        self.indices: set[int] = set()

    def note(self, indices: Iterable[int], grants: Iterable[Grant]) -> None:
        """These are lost, as far as the driver tells."""
        for index in sorted(set(indices) - self.indices):
            self.indices.add(index)
            on_it = sum(grant.has_card(index) for grant in grants)
            self._log.error("card-lost", card=index, containers=on_it, what="nothing new is put on it")

    async def run(self, look: Callable[[], Collection[int]], grants: Iterable[Grant]) -> None:
        """For ever. look: which cards the driver says are lost; it may take as long as the driver does."""
        while True:
            try:
                self.note(await asyncio.to_thread(look), grants)
            except Exception as error:  # the driver is gone, which others tell of
                self._log.warning("cards-not-seen", why=error)
            await asyncio.sleep(LOOK_S)
