"""Evicts while online calls wait for memory, and restores when there is room: one of each at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from native_sched.daemon.grants import live_grant_refusal
from native_sched.daemon.grants import memory_refusal as refusals
from native_sched.daemon.grants.grants import Grant, Reclaim
from native_sched.daemon.grants.served import Served
from native_sched.daemon.log import LOG
from native_sched.daemon.node import process_id
from native_sched.daemon.reclaim import relocate
from native_sched.daemon.reclaim.checkpoint import Alone, Checkpoint, Gone
from native_sched.daemon.reclaim.choose import Card, Restorations, Tenant, returning, victim
from native_sched.daemon.reclaim.counts import Counts
from native_sched.daemon.reclaim.move import Lost, Mover, NotMoved
from oci_specs.refusal import Refusal, quoted
from placement.cards import CardShare

_NS_PER_MS, _NS_PER_S = 1_000_000, 1_000_000_000
# A container that could not be moved is left alone for so long.
_RETRY_S = 10
# Room comes about without an event, as when an online container ends.
_LOOK_S = 0.25
_DRAIN_RESTORING_S = 10
# So long after an eviction the calls that wait are tried with what it has freed, and the driver may still
# count what the account does not.
_TRIED_S, _SETTLED_NS = 0.01, _NS_PER_S


class Asked(NamedTuple):
    """A request of the operator's. cards, by_hand: as they were."""

    what: Literal["evict", "resume"]
    cards: tuple[CardShare, ...] = ()
    by_hand: bool = False


class Reclaimer:
    """kill: ends a container. libcuda: the library that mgpu-checkpoint loads. lock: a file for Alone."""

    def __init__(self, served: Served, libcuda: str, lock: str, kill: Callable[[Grant], None]) -> None:
        self._served = served
        self._kill = kill
        self._alone = Alone(lock)
        self._out, self._back = (Checkpoint(libcuda, self._alone) for _ in range(2))
        self._evicts = Mover(served.engine, self._out, self._save)
        self._restores = Mover(served.engine, self._back, self._save)
        self._restorations = Restorations(served.config.restore_hold_ms * _NS_PER_MS)
        self._changed = asyncio.Event()
        self._evicting: Grant | None = None
        self._evicted_ns = -_SETTLED_NS
        self._restoring: Grant | None = None
        self._retry_ns: dict[int, int] = {}
        self._asked: dict[int, Asked] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.counts = Counts()

    def wake(self) -> None:
        self._changed.set()

    def close(self) -> None:
        self._out.close()
        self._back.close()
        self._alone.close()

    async def run(self) -> None:
        """For ever."""
        for grant in self._moving():
            if grant.reclaim.state != "running" and not grant.reclaim.saved:
                await self._settle(self._restores, grant)
        if self._served.lends_memory:
            with suppress(Gone, OSError):
                await self._out.start()
        while True:
            again_s = self._begin()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), again_s)
            self._changed.clear()

    def _moving(self) -> list[Grant]:
        """Those whose memory gives way, is away, or is to be moved."""
        return [
            grant
            for grant in self._served.grants
            if (grant.reclaimable or grant.reclaim.state != "running" or grant.tenant in self._asked)
            and grant.served
            and grant.state == "bound"
        ]

    def _save(self, grant: Grant, reclaim: Reclaim) -> None:
        self._served.store.save(grant, reclaim=reclaim)

    # Requests of the operator's.

    def ask_evict(self, grant: Grant, driver_version: str = "") -> None:
        """Refusal where it cannot be."""
        if not grant.cards:
            raise live_grant_refusal.no_card(grant)
        refusals.refuse_unevictable(
            driver_version,
            grant.cards,
            self._served.cards,
            f"container {quoted(grant.name)} is to be evicted",
        )
        if grant.state != "bound":
            raise refusals.not_bound(grant)
        if grant.reclaim.state in ("evicted", "evicting"):
            grant.reclaim.by_hand = True
            return
        if grant.reclaim.state != "running":
            raise refusals.not_running(grant)
        grant.not_moved = ""
        self._asked[grant.tenant] = Asked("evict")
        self.wake()

    def ask_resume(
        self,
        grant: Grant,
        names: Sequence[str] = (),
        *,
        driver_version: str = "",
        lost: Collection[int] = (),
    ) -> None:
        """names: of cards, where it is to go on with others. Refusal where it is not evicted, or its memory
        gives way and there is no room for all of it.
        """
        if grant.reclaim.state == "restoring" and set(names) <= {card.uuid for card in grant.cards}:
            return
        if grant.reclaim.state != "evicted":
            raise refusals.not_evicted(grant)
        before, by_hand = grant.cards, grant.reclaim.by_hand
        there = before
        if names:
            there = relocate.plan(self._served, grant, names, driver_version=driver_version, lost=lost)
        cards = self._cards()
        for index, size in relocate.sizes_on(grant, there).items() if grant.reclaimable else ():
            left = min(cards[index].left_bytes, cards[index].free_bytes)
            if left < size or cards[index].demanded_bytes:
                raise refusals.no_room_to_resume(
                    grant, index, size, 0 if cards[index].demanded_bytes else left
                )
        # A mgpud that ends now leaves the next one to restore it.
        relocate.apply(self._served, grant, there)
        grant.not_moved = ""
        self._retry_ns.pop(grant.tenant, None)
        self._asked[grant.tenant] = Asked("resume", before, by_hand)
        self.wake()

    # Moves that are due.

    def _cards(self) -> dict[int, Card]:
        settled = time.monotonic_ns() - self._evicted_ns > _SETTLED_NS
        found = {}
        for card in self._served.cards:
            memory = self._served.engine.card_memory(card.index)
            found[card.index] = Card(
                left_bytes=max(0, int(memory.total_bytes) - int(memory.taken_bytes)),
                free_bytes=max(0, int(memory.total_bytes) - int(memory.used_bytes)),
                demanded_bytes=max(1, int(memory.demanded_bytes)) if memory.demands else 0,
                unseen_bytes=int(memory.unseen_bytes) if settled else 0,
            )
        return found

    def _begin(self) -> float:
        """Begins what is due; seconds until the next look."""
        now_ns = time.monotonic_ns()
        grants = self._moving()
        cards: Mapping[int, Card] = self._cards() if grants else {}
        self._forget(grants)
        self._let_restoration_end(cards, now_ns)
        self._settle_left(grants, now_ns)
        cards = self._begin_return(grants, cards, now_ns)
        if self._evicting is None:
            self._begin_eviction(grants, cards, now_ns)
        again_ns = self._begin_restoration(grants, cards, now_ns) if self._restoring is None else None
        if not any(grant.reclaim.state != "running" for grant in grants) and not self._demanded(cards):
            return 60.0
        return _LOOK_S if again_ns is None else min(_LOOK_S, max(0.0, (again_ns - now_ns) / _NS_PER_S))

    @staticmethod
    def _demanded(cards: Mapping[int, Card]) -> bool:
        return any(card.demanded_bytes for card in cards.values())

    def _forget(self, grants: Iterable[Grant]) -> None:
        living = {grant.tenant for grant in grants}
        self._restorations.ended(living)
        for table in (self._retry_ns, self._asked):
            for tenant in table.keys() - living:
                table.pop(tenant)

    def _let_restoration_end(self, cards: Mapping[int, Card], now_ns: int) -> None:
        """An online call waits for what is being restored: that has to end before it can be evicted again."""
        grant = self._restoring
        if grant is not None and any(
            cards[card].demanded_bytes for card in grant.reclaim.bytes if card in cards
        ):
            with suppress(OSError):
                self._served.engine.drain(grant.tenant, now_ns + _DRAIN_RESTORING_S * _NS_PER_S)

    def _settle_left(self, grants: Iterable[Grant], now_ns: int) -> None:
        """One that was left between its two places is looked after again."""
        due = [
            grant
            for grant in grants
            if grant.reclaim.state in ("evicting", "restoring")
            and grant is not self._evicting
            and not (grant.reclaim.saved and self._is_not_there(grant))
            and self._retry_ns.get(grant.tenant, 0) <= now_ns
        ]
        if due and self._restoring is None:
            self._restoring = due[0]
            self._spawn(self._settle_again(due[0]))

    @staticmethod
    def _is_not_there(grant: Grant) -> bool:
        """Its first process goes on as the last one, and while it is frozen none is asked."""
        return grant.paused or process_id.is_stopped(grant.pid or 0)

    def _begin_eviction(self, grants: Iterable[Grant], cards: Mapping[int, Card], now_ns: int) -> None:
        running = {
            grant.tenant: grant for grant in grants if grant.reclaim.state == "running" and not grant.paused
        }
        by_hand = [
            tenant for tenant, asked in self._asked.items() if asked.what == "evict" and tenant in running
        ]
        if by_hand:
            del self._asked[by_hand[0]]
            self._spawn(self._evict(running[by_hand[0]], by_hand=True))
            return
        chosen = victim(
            cards,
            [
                self._tenant(grant, self._evicts.held_bytes(grant))
                for grant in running.values()
                if grant.reclaimable and self._retry_ns.get(grant.tenant, 0) <= now_ns
            ],
        )
        if chosen is not None:
            self._restorations.evicted(chosen, now_ns)
            self._spawn(self._evict(running[chosen.tenant], by_hand=False))

    def _begin_return(
        self, grants: Iterable[Grant], cards: Mapping[int, Card], now_ns: int
    ) -> Mapping[int, Card]:
        """Of containers that do not give way. The cards, as they are for those that do."""
        waiting = {
            grant.tenant: grant
            for grant in self._evicted(grants)
            if not grant.reclaimable and self._comes_back(grant, now_ns)
        }
        back, cards = returning(
            cards, [self._tenant(grant, grant.reclaim.bytes) for grant in waiting.values()]
        )
        if back is not None and self._restoring is None:
            self._restoring = waiting[back.tenant]
            self._spawn(self._restore(self._restoring, self._asked.pop(back.tenant, None)))
        return cards

    @staticmethod
    def _evicted(grants: Iterable[Grant]) -> list[Grant]:
        return [grant for grant in grants if grant.reclaim.state == "evicted" and not grant.paused]

    def _comes_back(self, grant: Grant, now_ns: int) -> bool:
        return not grant.reclaim.by_hand and self._retry_ns.get(grant.tenant, 0) <= now_ns

    def _begin_restoration(
        self, grants: Iterable[Grant], cards: Mapping[int, Card], now_ns: int
    ) -> int | None:
        evicted = {grant.tenant: grant for grant in self._evicted(grants) if grant.reclaimable}
        by_hand = [
            tenant for tenant, asked in self._asked.items() if asked.what == "resume" and tenant in evicted
        ]
        if by_hand:
            self._spawn(self._restore(evicted[by_hand[0]], self._asked.pop(by_hand[0])))
            return None
        waiting = [
            self._tenant(grant, grant.reclaim.bytes)
            for grant in evicted.values()
            if self._comes_back(grant, now_ns)
        ]
        chosen, again_ns = self._restorations.next(now_ns, cards, waiting)
        if chosen is not None:
            self._spawn(self._restore(evicted[chosen.tenant]))
        return again_ns

    @staticmethod
    def _tenant(grant: Grant, held: dict[int, int]) -> Tenant:
        return Tenant(
            tenant=grant.tenant,
            bytes={card: size for card, size in held.items() if size},
            since_ns=grant.reclaim.since_ns,
            kept=grant.qos == "offline" and not grant.reclaimable,
        )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(LOG.ended)

    # The work itself.

    async def _evict(self, grant: Grant, *, by_hand: bool) -> None:
        config = self._served.config
        self._evicting = grant
        size = sum(self._evicts.held_bytes(grant).values())
        begun_ns = time.monotonic_ns()
        try:
            await self._evicts.evict(
                grant,
                drain_ms=config.evict_wait_ms if by_hand else config.evict_drain_ms,
                beside_online=not by_hand,
                by_hand=by_hand,
            )
        except NotMoved as error:
            self._left(grant, str(error))
            if not by_hand and config.unevictable == "end":
                LOG.error("killed-unevictable", container=grant.container_id, why=error)
                self._kill(grant)
        except Gone as error:
            self._left(grant, str(error))
            await self._settle(self._evicts, grant)
        except Lost as error:
            self._lose(grant, error)
        else:
            self.counts.evictions += 1
            self.counts.evicted_bytes += size
            LOG.info("evicted", container=grant.container_id, mib=size >> 20, ms=_ms_since(begun_ns))
            self._evicted_ns = time.monotonic_ns()
            await asyncio.sleep(_TRIED_S)
        finally:
            self._evicting = None
            self.wake()

    async def _restore(self, grant: Grant, asked: Asked | None = None) -> None:
        self._restoring = grant
        size = sum(grant.reclaim.bytes.values())
        begun_ns = time.monotonic_ns()
        try:
            await self._restores.restore(grant)
        except NotMoved as error:
            self._as_before(grant, asked)
            self._left(grant, str(error))
        except Gone as error:
            await self._settle(self._restores, grant)
            if grant.reclaim.state != "running":
                self._as_before(grant, asked)
                self._left(grant, str(error))
        except Lost as error:
            self._lose(grant, error)
        else:
            self.counts.restorations += 1
            self.counts.restored_bytes += size
            LOG.info("restored", container=grant.container_id, mib=size >> 20, ms=_ms_since(begun_ns))
        finally:
            with suppress(OSError):
                self._served.engine.drain(grant.tenant, 0)
            self._restoring = None
            self.wake()

    def _as_before(self, grant: Grant, asked: Asked | None) -> None:
        """The request could not be met: an evicted container gets its cards back, if they take it."""
        if asked is None or grant.reclaim.state != "evicted":
            return
        try:
            relocate.apply(self._served, grant, asked.cards)
        except Refusal as refusal:
            LOG.warning("not-back-on-its-gpus", container=grant.container_id, why=refusal.message)
        grant.reclaim.by_hand = asked.by_hand
        self._served.store.note(grant)

    async def _settle(self, mover: Mover, grant: Grant) -> None:
        came = bool(grant.reclaim.saved)
        try:
            await mover.settle(grant)
        except Lost as error:
            self._lose(grant, error)
        except (Gone, NotMoved) as error:
            self._left(grant, str(error))
        LOG.info("settled", container=grant.container_id, state=grant.reclaim.state)
        if came and grant.reclaim.state == "evicted":
            mib = sum(grant.reclaim.bytes.values()) >> 20
            LOG.info("came-evicted", container=grant.container_id, mib=mib)

    async def _settle_again(self, grant: Grant) -> None:
        try:
            await self._settle(self._restores, grant)
        finally:
            self._restoring = None
            self.wake()

    def _left(self, grant: Grant, why: str) -> None:
        """It stays where it is for a while; said once for each reason."""
        self.counts.failures += 1
        self._retry_ns[grant.tenant] = time.monotonic_ns() + _RETRY_S * _NS_PER_S
        if grant.not_moved != why:
            LOG.warning(
                "not-restored" if grant.reclaim.state == "evicted" else "not-evicted",
                container=grant.container_id,
                why=why,
            )
        grant.not_moved = why

    def _lose(self, grant: Grant, error: Lost) -> None:
        self.counts.failures += 1
        LOG.error("killed-not-restored", container=grant.container_id, why=error)
        self._kill(grant)


def _ms_since(begun_ns: int) -> int:
    return (time.monotonic_ns() - begun_ns) // _NS_PER_MS
