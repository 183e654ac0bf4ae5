"""Evicts while online calls wait for memory, one container at a time, and restores when there is room, one
at a time on each card. What has to wait for online work there holds up nothing elsewhere.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from native_sched.daemon.grants.grants import Asked, Grant, Reclaim
from native_sched.daemon.grants.grants import ReclaimState as State
from native_sched.daemon.grants.refusals import refuse, refuse_unevictable
from native_sched.daemon.grants.served import Served
from native_sched.daemon.log import LOG
from native_sched.daemon.node import process_id
from native_sched.daemon.reclaim import relocate
from native_sched.daemon.reclaim.checkpoint import Alone, Checkpoint, Gone
from native_sched.daemon.reclaim.choose import Card, Restorations, Tenant, returning, victim
from native_sched.daemon.reclaim.counts import Counts
from native_sched.daemon.reclaim.move import Lost, Mover, NotMoved, NotWritten, is_alive
from oci_specs.refusal import Refusal, quoted

_NS_PER_MS, _NS_PER_S = 1_000_000, 1_000_000_000
# A container that could not be moved is left alone for so long, or for a moment where that was not by itself:
# mgpu-checkpoint ended, or the move could not be written down. Each moment in a row is twice the one before.
_RETRY_S, _MOMENT_S, _MOMENT_MOST_S = 10, 0.03, 0.5
# Or for a quarter of a second, if an online call waits for it.
_SOON_NS = _RETRY_S * _NS_PER_S - 250 * _NS_PER_MS
# Room comes about without an event, as when an online container ends.
_LOOK_S = 0.25
# So long after an eviction the calls that wait are tried with what it has freed, and the driver may still
# count what the account does not.
_TRIED_S, _DRIVER_LAGS_NS = 0.01, _NS_PER_S

_Work = Coroutine[Any, Any, None]


class Reclaimer:
    """kill: ends a container. lock: a file for Alone."""

    def __init__(self, served: Served, driver: str, lock: str, kill: Callable[[Grant], None]) -> None:
        self._served = served
        self._kill = kill
        self._driver = driver
        self._alone = Alone(lock)
        self._ready = self._checkpoint()
        self._restorations = Restorations(served.config.restore_hold_ms * _NS_PER_MS)
        self._changed = asyncio.Event()
        # The one that an online call waits for, and all that move, by tenant.
        self._evicting: Grant | None = None
        self._moves: dict[int, tuple[Grant, Mover, asyncio.Task[None]]] = {}
        self._evicted_ns = -_DRIVER_LAGS_NS
        self._retry_ns: dict[int, int] = {}
        self._moments_s: dict[int, float] = {}
        self.counts = Counts()

    def wake(self) -> None:
        self._changed.set()

    def close(self) -> None:
        self._ready.close()
        self._alone.close()

    def _checkpoint(self) -> Checkpoint:
        return Checkpoint(self._driver, self._alone)

    async def run(self) -> None:
        """For ever."""
        for grant in self._moving():
            if grant.reclaim.state != State.RUNNING and not grant.reclaim.saved:
                self._spawn(grant, partial(self._recover, grant))
        if self._served.lends_memory:
            with suppress(OSError):
                await self._ready.start()
        while True:
            try:
                again_s = self._begin()
            except Exception as error:  # a fault of ours: it looks again, as online may wait
                LOG.unexpected({"exception": error})
                again_s = _RETRY_S
            # wait_for() loses a cancellation that comes with the event.
            with suppress(TimeoutError):
                async with asyncio.timeout(again_s):
                    await self._changed.wait()
            self._changed.clear()

    def _moving(self) -> list[Grant]:
        """Those whose memory gives way, is away, or is to be moved."""
        return [
            grant
            for grant in self._served.grants
            if (grant.reclaimable or grant.reclaim.state != State.RUNNING or grant.asked is not None)
            and grant.served
            and grant.state == "bound"
        ]

    def _is_there(self, grant: Grant) -> bool:
        return self._served.grants.get(grant.nonce) is grant

    def _save(self, grant: Grant, reclaim: Reclaim) -> None:
        if self._is_there(grant):
            self._served.store.save(grant, reclaim=reclaim)

    # Requests of the operator's.

    def ask_evict(self, grant: Grant, driver_version: str = "") -> None:
        """Refusal where it cannot be."""
        if not grant.cards:
            raise refuse("no-card", grant)
        refuse_unevictable(
            driver_version,
            grant.cards,
            self._served.cards,
            f"container {quoted(grant.name)} is to be evicted",
        )
        if grant.state != "bound":
            raise refuse("not-bound", grant, state=grant.state)
        if grant.reclaim.state == State.RESTORING:
            raise refuse("not-running", grant, state=grant.reclaim.state)
        grant.not_moved = ""
        grant.asked = Asked("evict")
        self.wake()

    def ask_resume(
        self,
        grant: Grant,
        names: Sequence[str] = (),
        *,
        driver_version: str = "",
        closed: Collection[int] = (),
    ) -> None:
        """names: of cards, where it is to go on with others. Refusal where it is not evicted, or its memory
        gives way and there is no room for all of it.
        """
        if grant.reclaim.state == State.RESTORING and set(names) <= {card.uuid for card in grant.cards}:
            return
        if grant.reclaim.state != State.EVICTED:
            raise refuse("not-evicted", grant, state=grant.reclaim.state)
        before, by_hand = grant.cards, grant.reclaim.by_hand
        there = before
        if names:
            there = relocate.plan(self._served, grant, names, driver_version=driver_version, closed=closed)
        cards = self._cards()
        for index, size in relocate.sizes_on(grant, there).items() if grant.reclaimable else ():
            demanded = cards[index].demanded_bytes
            left = 0 if demanded else min(cards[index].left_bytes, cards[index].free_bytes)
            if left < size or demanded:
                raise refuse("no-room-to-resume", grant, needs=-(-size >> 20), card=index, left=left >> 20)
        # A mgpud that ends now leaves the next one to restore it.
        relocate.apply(self._served, grant, there)
        grant.not_moved = ""
        grant.asked = Asked("resume", before, by_hand)
        self.wake()

    # Moves that are due.

    def _cards(self) -> dict[int, Card]:
        lagged = time.monotonic_ns() - self._evicted_ns > _DRIVER_LAGS_NS
        found = {}
        for card in self._served.cards:
            memory = self._served.engine.card_memory(card.index)
            found[card.index] = Card(
                left_bytes=max(0, int(memory.total_bytes) - int(memory.taken_bytes)),
                free_bytes=max(0, int(memory.total_bytes) - int(memory.used_bytes)),
                demanded_bytes=max(1, int(memory.demanded_bytes)) if memory.demands else 0,
                unreported_bytes=int(memory.unreported_bytes) if lagged else 0,
            )
        return found

    def _begin(self) -> float:
        """Begins what is due; seconds until the next look."""
        now_ns = time.monotonic_ns()
        grants = self._moving()
        cards: Mapping[int, Card] = self._cards() if grants else {}
        self._forget(grants)
        self._boost(cards)
        self._recover_left(grants, cards, now_ns)
        for grant in grants:
            if grant.asked is not None and grant.tenant not in self._moves:
                self._begin_asked(grant, grant.asked)
        cards = self._begin_return(grants, cards, now_ns)
        if self._evicting is None:
            self._begin_eviction(grants, cards, now_ns)
        again_ns = self._begin_restoration(grants, cards, now_ns)
        if not any(grant.reclaim.state != State.RUNNING for grant in grants) and not self._demanded(cards):
            return 60.0
        dues_ns = [due for due in (again_ns, *self._retry_ns.values()) if due is not None and due > now_ns]
        return min([_LOOK_S, *((due - now_ns) / _NS_PER_S for due in dues_ns)])

    @staticmethod
    def _demanded(cards: Mapping[int, Card]) -> bool:
        return any(card.demanded_bytes for card in cards.values())

    def _forget(self, grants: Iterable[Grant]) -> None:
        living = {grant.tenant for grant in grants}
        self._restorations.ended(living)
        for tenant in self._retry_ns.keys() - living:
            del self._retry_ns[tenant]
            self._moments_s.pop(tenant, None)

    def _boost(self, cards: Mapping[int, Card]) -> None:
        """An online call waits for what moves: that has to end before it can be evicted, or evicted again."""
        for grant, mover, _ in self._moves.values():
            if any(cards[card].demanded_bytes for card in grant.reclaim.bytes if card in cards):
                mover.boost(grant, self._served.config.evict_drain_ms)

    def _recover_left(self, grants: Iterable[Grant], cards: Mapping[int, Card], now_ns: int) -> None:
        """Retry containers stuck between GPU and host memory: soon where an online call waits for their room.

        A container restored from a checkpoint is retried only after its init process runs.
        """
        demanded = {index for index, card in cards.items() if card.demanded_bytes}
        for grant in grants:
            if (
                grant.reclaim.state in (State.EVICTING, State.RESTORING)
                and grant.tenant not in self._moves
                and self._retry_ns.get(grant.tenant, 0)
                <= now_ns + (0 if demanded.isdisjoint(grant.reclaim.bytes) else _SOON_NS)
                and not (grant.reclaim.saved and (grant.paused or process_id.is_stopped(grant.pid or 0)))
            ):
                self._spawn(grant, partial(self._recover, grant))

    def _begin_asked(self, grant: Grant, asked: Asked) -> None:
        state = grant.reclaim.state
        if (asked.what, state) == ("evict", State.RUNNING) and not grant.paused:
            self._spawn(grant, partial(self._evict, grant, self._running(grant), asked))
        elif (asked.what, state) == ("resume", State.EVICTED) and not grant.paused:
            if grant.reclaimable:
                self._spawn(grant, partial(self._restore, grant, asked))
        elif state in (State.RUNNING, State.EVICTED):
            grant.asked = None
            if (asked.what, state) == ("evict", State.EVICTED):
                grant.reclaim.by_hand = True
                self._served.store.note(grant)
            elif grant.paused:
                self._as_before(grant, asked)
                grant.not_moved = "it is frozen"

    def _begin_eviction(self, grants: Iterable[Grant], cards: Mapping[int, Card], now_ns: int) -> None:
        running = {
            grant.tenant: grant
            for grant in grants
            if grant.reclaimable
            and grant.reclaim.state == State.RUNNING
            and not grant.paused
            and grant.tenant not in self._moves
            and self._retry_ns.get(grant.tenant, 0) <= now_ns
        }
        chosen = victim(cards, map(self._running, running.values()))
        if chosen is not None:
            grant = self._evicting = running[chosen.tenant]
            self._spawn(grant, partial(self._evict, grant, chosen, None), self._ready)

    def _begin_return(
        self, grants: Iterable[Grant], cards: Mapping[int, Card], now_ns: int
    ) -> Mapping[int, Card]:
        """Of evicted ones that do not give way, and so wait for no other's move. The cards, as they are for
        those that do.
        """
        waiting = self._waiting(grants, now_ns, give_way=False)
        back, cards = returning(cards, map(self._evicted, waiting.values()))
        if back is not None:
            grant = waiting[back.tenant]
            self._spawn(grant, partial(self._restore, grant, grant.asked))
        return cards

    def _begin_restoration(
        self, grants: Iterable[Grant], cards: Mapping[int, Card], now_ns: int
    ) -> int | None:
        """One at a time on each card: what waits for online work on one card holds up no other."""
        busy = {card.index for grant, _, _ in self._moves.values() for card in grant.cards}
        evicted = {
            tenant: grant
            for tenant, grant in self._waiting(grants, now_ns, give_way=True).items()
            if busy.isdisjoint(card.index for card in grant.cards)
        }
        chosen, again_ns = self._restorations.next(now_ns, cards, map(self._evicted, evicted.values()))
        for tenant, grant in evicted.items():
            grant.back_ns = self._restorations.back_ns.get(tenant, 0)
            grant.waits = self._restorations.waits.get(tenant, "")
        if chosen is not None:
            grant = evicted[chosen.tenant]
            self._spawn(grant, partial(self._restore, grant, None))
        return again_ns

    def _waiting(self, grants: Iterable[Grant], now_ns: int, *, give_way: bool) -> dict[int, Grant]:
        """Evicted ones that come back by themselves, or were asked to."""
        return {
            grant.tenant: grant
            for grant in grants
            if grant.reclaim.state == State.EVICTED
            and grant.reclaimable == give_way
            and not grant.paused
            and not grant.reclaim.by_hand
            and grant.tenant not in self._moves
            and (grant.asked is not None or self._retry_ns.get(grant.tenant, 0) <= now_ns)
        }

    def _running(self, grant: Grant) -> Tenant:
        held = {card.index: self._served.engine.usage(grant.tenant, card.index) for card in grant.cards}
        return self._tenant(grant, {card: int(usage.used_bytes) for card, usage in held.items()})

    def _evicted(self, grant: Grant) -> Tenant:
        """One whose processes have ended has nothing to bring back, and gets memory again."""
        return self._tenant(grant, grant.reclaim.bytes if is_alive(grant) else {})

    @staticmethod
    def _tenant(grant: Grant, held: dict[int, int]) -> Tenant:
        return Tenant(
            tenant=grant.tenant,
            bytes={card: size for card, size in held.items() if size},
            since_ns=grant.reclaim.since_ns,
            kept=grant.qos == "offline" and not grant.reclaimable,
        )

    def _spawn(self, grant: Grant, work: Callable[[Mover], _Work], ready: Checkpoint | None = None) -> None:
        """ready: a Checkpoint that stays."""
        checkpoint = ready or self._checkpoint()
        mover = Mover(self._served.engine, checkpoint, self._save)
        task = asyncio.get_running_loop().create_task(work(mover))
        self._moves[grant.tenant] = grant, mover, task

        def ended(_task: object) -> None:
            mover.drained(grant)
            if ready is None:
                checkpoint.close()
            if grant is self._evicting:
                self._evicting = None
            del self._moves[grant.tenant]
            self.wake()

        task.add_done_callback(ended)
        task.add_done_callback(LOG.ended)

    # The work itself.

    async def _evict(self, grant: Grant, before: Tenant, asked: Asked | None, mover: Mover) -> None:
        config = self._served.config
        begun_ns = time.monotonic_ns()
        evict = partial(
            mover.evict,
            grant,
            drain_ms=config.evict_drain_ms if asked is None else config.evict_wait_ms,
            beside_online=asked is None,
            by_hand=asked is not None,
        )
        why, rest_s = await self._move(grant, mover, evict)
        if grant.reclaim.state == State.EVICTED:
            size = sum(before.bytes.values())
            self._evicted_ns = time.monotonic_ns()
            self.counts.evicting.note((self._evicted_ns - begun_ns) / _NS_PER_S)
            self.counts.evicted_bytes += size
            LOG.info("evicted", container=grant.container_id, mib=size >> 20, ms=_ms_since(begun_ns))
            if asked is None:
                self._restorations.evicted(before, self._evicted_ns)
            self._is_moved(grant)
        else:
            self._note_not_moved(grant, why, rest_s)
            for_good = rest_s >= _MOMENT_MOST_S and config.unevictable == "end"
            if asked is None and for_good and self._holds(grant):
                LOG.error("killed-unevictable", container=grant.container_id, why=why)
                self._kill(grant)
        if grant.asked is asked:
            grant.asked = None
        if asked is None:
            await asyncio.sleep(_TRIED_S)

    async def _restore(self, grant: Grant, asked: Asked | None, mover: Mover) -> None:
        size, away_ns = sum(grant.reclaim.bytes.values()), grant.reclaim.since_ns
        begun_ns = time.monotonic_ns()
        why, rest_s = await self._move(grant, mover, partial(mover.restore, grant))
        if grant.reclaim.state == State.RUNNING:
            back_ns = time.monotonic_ns()
            self.counts.restoring.note((back_ns - begun_ns) / _NS_PER_S)
            if away_ns:
                self.counts.away.note((back_ns - away_ns) / _NS_PER_S)
            self.counts.restored_bytes += size
            LOG.info("restored", container=grant.container_id, mib=size >> 20, ms=_ms_since(begun_ns))
            self._is_moved(grant)
        else:
            self._as_before(grant, asked)
            self._note_not_moved(grant, why, rest_s)
        if grant.asked is asked:
            grant.asked = None

    async def _move(self, grant: Grant, mover: Mover, move: Callable[[], _Work]) -> tuple[str, float]:
        """Why it is not done, or empty, and for how many seconds it is left alone then.

        Once more, if mgpu-checkpoint has ended and all is as before, unless online would wait for its return.
        """
        before, why = grant.reclaim.state, ""
        for _ in range(2):
            try:
                await move()
                return "", 0
            except Gone as error:
                why = str(error)
                await self._recover(grant, mover)
            except Lost as error:
                self._lose(grant, error)
                return str(error), _RETRY_S
            except NotMoved as error:
                return str(error), self._moment_s(grant) if isinstance(error, NotWritten) else _RETRY_S
            except OSError as error:
                return error.strerror or str(error), _RETRY_S
            if grant.reclaim.state != before or (before == State.EVICTED and self._gives_way(grant)):
                break
        return why, self._moment_s(grant)

    def _gives_way(self, grant: Grant) -> bool:
        """An online call waits for the room that it is to come back to."""
        cards = self._cards() if grant.reclaimable else {}
        return any(card in cards and cards[card].demanded_bytes for card in grant.reclaim.bytes)

    def _moment_s(self, grant: Grant) -> float:
        before_s = self._moments_s.get(grant.tenant, _MOMENT_S / 2)
        self._moments_s[grant.tenant] = min(2 * before_s, _MOMENT_MOST_S)
        return self._moments_s[grant.tenant]

    def _is_moved(self, grant: Grant) -> None:
        grant.not_moved = ""
        self._moments_s.pop(grant.tenant, None)

    def _holds(self, grant: Grant) -> bool:
        with suppress(OSError):  # it has ended meanwhile
            return bool(self._running(grant).bytes)
        return False

    def _as_before(self, grant: Grant, asked: Asked | None) -> None:
        """The request could not be met: an evicted container gets its cards back, if they take it."""
        if asked is None or grant.reclaim.state != State.EVICTED or not self._is_there(grant):
            return
        try:
            relocate.apply(self._served, grant, asked.cards)
        except Refusal as refusal:
            LOG.warning("not-back-on-its-gpus", container=grant.container_id, why=refusal.message)
        grant.reclaim.by_hand = asked.by_hand
        self._served.store.note(grant)

    async def _recover(self, grant: Grant, mover: Mover) -> None:
        came = bool(grant.reclaim.saved)
        try:
            await mover.recover(grant)
        except Lost as error:
            self._lose(grant, error)
        except Gone as error:
            self._note_not_moved(grant, str(error), self._moment_s(grant))
        except NotMoved as error:
            self._note_not_moved(grant, str(error))
        LOG.info("settled", container=grant.container_id, state=grant.reclaim.state)
        if came and grant.reclaim.state == State.EVICTED:
            mib = sum(grant.reclaim.bytes.values()) >> 20
            LOG.info("came-evicted", container=grant.container_id, mib=mib)

    def _note_not_moved(self, grant: Grant, why: str, seconds: float = _RETRY_S) -> None:
        """It stays where it is for a while, which is logged once for each reason."""
        if not self._is_there(grant):
            return
        self._defer_retry(grant, seconds)
        if grant.not_moved != why:
            LOG.warning(
                "not-evicted" if grant.reclaim.state in (State.RUNNING, State.EVICTING) else "not-restored",
                container=grant.container_id,
                why=why,
            )
        grant.not_moved = why

    def _defer_retry(self, grant: Grant, seconds: float = _RETRY_S) -> None:
        self.counts.failures += 1
        self._retry_ns[grant.tenant] = time.monotonic_ns() + int(seconds * _NS_PER_S)
        grant.back_ns, grant.waits = self._retry_ns[grant.tenant], ""

    def _lose(self, grant: Grant, error: Lost) -> None:
        self._defer_retry(grant)
        LOG.error("killed-not-restored", container=grant.container_id, why=error)
        self._kill(grant)


def _ms_since(begun_ns: int) -> int:
    return (time.monotonic_ns() - begun_ns) // _NS_PER_MS
