"""One container's way off its cards and back, step by step.

Each step is written down before it is made. Whatever ends in the middle, mgpud, mgpu-checkpoint or the
container, the states of its processes tell the next one how to go on (recover()).
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from native_sched.daemon.engine import Engine
from native_sched.daemon.engine_abi import Why
from native_sched.daemon.grants import memory_kind
from native_sched.daemon.grants.grants import Grant, Reclaim
from native_sched.daemon.grants.grants import ReclaimState as State
from native_sched.daemon.log import LOG
from native_sched.daemon.node import process_id
from native_sched.daemon.reclaim import host_memory
from native_sched.daemon.reclaim.checkpoint import Checkpoint, Failed, Patience
from native_sched.daemon.reclaim.transitions import AFTER_CRASH, TRANSITIONS
from oci_specs.refusal import Refusal

_NS_PER_MS, _NS_PER_S = 1_000_000, 1_000_000_000
# A copy is given up that is slower than this, after its first seconds, the time not counted in which it waits
# for online work.
_SLOWEST_BYTES_PER_S, _COPY_LEAST_S = 256 << 20, 10.0
_NO_CUDA = "CUDA_ERROR_NOT_INITIALIZED "
_CHANGING = ("checkpointing", "restoring")
_WAITS_FOR_ONLINE = (Why.PREEMPTED, Why.HOLD)
_BOOST_NS = 10 * _NS_PER_S
_LOOK_S = 0.02
_ENDS_WITHIN_NS = 2 * _NS_PER_S
# A driver may leave so little of what was moved.
_LEFT_PART = 16
# How long a call of online's that is tried may take what the staging buffers need.
_STAGING_NS = 200 * _NS_PER_MS
# A thread that answers may be gone before its process is seen to end.
_SEEN_TO_END_NS = 200 * _NS_PER_MS


class NotMoved(Exception):
    """The container is as it was, and why."""


class NotWritten(NotMoved):
    """The move could not be written down, such as on a full disk, and so was not begun."""


class Lost(Exception):
    """A process of it can go on in neither place."""


class Mover:
    """Moves one container with one mgpu-checkpoint. save: writes a grant down as it will be; Refusal."""

    def __init__(
        self, engine: Engine, checkpoint: Checkpoint, save: Callable[[Grant, Reclaim], None]
    ) -> None:
        self._engine = engine
        self._checkpoint = checkpoint
        self._save = save
        # Its submitted work completes now; whether it was let run for that, beside online work.
        self._completes = self._was_let_run = self._drains = False

    async def evict(
        self, grant: Grant, *, drain_ms: int, beside_online: bool, by_hand: bool = False
    ) -> None:
        """NotMoved where it cannot be; it runs on then. Gone: recover() has to find out.

        beside_online: its work may run until it is locked, whatever online does.
        """
        held = self.bytes_on_cards(grant)
        processes = self._processes(grant)
        if not processes:
            raise NotMoved("no process of it shows what it holds")
        size = sum(held.values())
        room = host_memory.room_bytes(processes[0][0])
        if room < size:
            raise NotMoved(f"{size >> 20} MiB do not fit the {room >> 20} MiB of host memory left to it")
        try:
            # One that the driver cannot move, such as one without libcuda, is left alone.
            await self._states(grant, processes)
        except Failed as error:
            raise NotMoved(str(error)) from error
        self._enter(grant, State.EVICTING, processes=processes, bytes=held, by_hand=by_hand)
        deadline_ns = time.monotonic_ns() + drain_ms * _NS_PER_MS
        self._completes, self._was_let_run = True, beside_online
        try:
            if beside_online:
                self._drain(grant, deadline_ns)
            await self._lock_all(grant, deadline_ns)
            self._completes = False
            if beside_online:
                self._drain(grant, time.monotonic_ns() + int(_copy_s(size) * _NS_PER_S))
            await self._checkpoint_all(grant)
            await self._check_left(grant)
        except (Failed, NotMoved) as error:
            await self._put_back(grant)
            raise NotMoved(str(error)) from error
        finally:
            self._completes = False
            self.drained(grant)
        self._enter(grant, State.EVICTED)

    def boost(self, grant: Grant, drain_ms: int) -> None:
        """An online call waits until this is done: what is copied may be copied beside online work, and what
        the container has submitted may complete, once, for so long.
        """
        until_ns = time.monotonic_ns() + (drain_ms * _NS_PER_MS if self._completes else _BOOST_NS)
        if not (self._completes and self._was_let_run):
            self._was_let_run = self._completes
            self._drain(grant, until_ns)

    async def restore(self, grant: Grant) -> None:
        """NotMoved where there is no room, or the driver refuses; it stays evicted then."""
        if not is_alive(grant):
            self._enter(grant, State.RUNNING)
            return
        try:
            await self._keep_room(grant)
        except OSError as error:
            raise NotMoved(f"its memory is not free on its GPUs ({error.strerror})") from error
        try:
            self._enter(grant, State.RESTORING)
            await self._restore_all(grant)
        except (Failed, NotMoved) as error:
            await self._forward(grant)
            raise NotMoved(str(error)) from error
        self._enter(grant, State.RUNNING)

    async def recover(self, grant: Grant) -> None:
        """Finds out where its processes are, and brings all of them to one place: on the cards, or off them.

        Lost when that cannot be.
        """
        was = grant.reclaim.state
        try:
            if grant.reclaim.saved:
                await self._find(grant)
            states = await self._states(grant)
        except Failed as error:
            raise NotMoved(str(error)) from error
        try:
            if "checkpointed" not in states.values():
                await self._unlock_all(grant)
                self._enter(grant, State.RUNNING)
            elif was == State.RESTORING and set(states.values()) == {"checkpointed"}:
                # Nothing has moved. Online may want the room by now, so this one is restored later, when it
                # is due.
                self._enter(grant, State.EVICTED)
            elif AFTER_CRASH[was] == State.RUNNING:
                await self._restore_all(grant)
                self._enter(grant, State.RUNNING)
            else:
                await self._lock_all(grant, time.monotonic_ns() + _NS_PER_S)
                await self._checkpoint_all(grant)
                self._enter(grant, State.EVICTED)
        except (Failed, NotMoved) as error:
            if was == State.RESTORING:
                await self._forward(grant)
            else:
                await self._put_back(grant)
            LOG.warning("not-moved", container=grant.container_id, why=error)

    def bytes_on_cards(self, grant: Grant) -> dict[int, int]:
        """By card, what it holds now."""
        return {
            card.index: int(self._engine.usage(grant.tenant, card.index).used_bytes) for card in grant.cards
        }

    async def _find(self, grant: Grant) -> None:
        """Of a container of a checkpoint: the processes that have CUDA, and what they were moved off."""
        now, here = grant.reclaim, tuple(card.uuid for card in grant.cards)
        found = [one for one in process_id.inside(grant.pid or 0) if await self._has_cuda(*one)]
        states = await self._states(grant, found)
        away = [] if now.saved == here else [pid for pid in states if states[pid] == "checkpointed"]
        self._enter(
            grant,
            State.EVICTING,
            processes=tuple(found),
            # Moved off without this mgpu's knowing: it may have had as much as it may have here.
            bytes=now.bytes or {card.index: card.memory_mib << 20 for card in grant.cards},
            were=dict.fromkeys(away, now.saved),
        )

    async def _has_cuda(self, pid: int, start: int) -> bool:
        try:
            await self._checkpoint.state(pid)
        except Failed as error:
            if str(error).startswith(_NO_CUDA) or not process_id.lives(pid, start):
                return False
            raise
        return True

    def _processes(self, grant: Grant) -> tuple[tuple[int, int], ...]:
        """A file outlives the process that is charged for it, whose number may be a stranger's by now."""
        found = []
        for pid in sorted({process.pid for process in self._engine.processes(grant.tenant)}):
            with suppress(ProcessLookupError):
                start = process_id.start_time(pid)
                if process_id.is_inside(pid, grant.pid or 0):
                    found.append((pid, start))
        return tuple(found)

    async def _check_left(self, grant: Grant) -> None:
        """NotMoved where it still has memory there, of files or of what its CUDA does not know."""
        size, patience_ns = sum(grant.reclaim.bytes.values()), time.monotonic_ns() + _ENDS_WITHIN_NS
        while (left := sum(self.bytes_on_cards(grant).values())) > size // _LEFT_PART:
            if time.monotonic_ns() > patience_ns:
                raise NotMoved(f"{left >> 20} MiB stayed on its GPUs: no CUDA of its processes has them")
            await asyncio.sleep(_LOOK_S)

    def _enter(self, grant: Grant, state: State, **changed: Any) -> None:
        """Written down, then told to the engine. NotMoved when it cannot be written down before it begins."""
        now = grant.reclaim
        way = TRANSITIONS[now.state, state]
        then = Reclaim() if state == State.RUNNING else replace(now, state=state, saved=(), **changed)
        then.since_ns = time.monotonic_ns()
        try:
            self._save(grant, then)
        except Refusal as refusal:
            if way.written_first:
                raise NotWritten(refusal.message) from refusal
            # The states of its processes say it to the next mgpud.
            LOG.warning("grant-not-recorded", container=grant.container_id, why=refusal.message)
        grant.reclaim = then
        if not way.told_first:
            with suppress(OSError):  # its container is gone meanwhile
                self._engine.reclaim(grant.tenant, closed=state != State.RUNNING)

    def _drain(self, grant: Grant, until_ns: int) -> None:
        self._drains = bool(until_ns)
        with suppress(OSError):  # its container is gone meanwhile
            self._engine.drain(grant.tenant, until_ns)

    def drained(self, grant: Grant) -> None:
        if self._drains:
            self._drain(grant, 0)

    def _living(self, grant: Grant) -> list[int]:
        found = [pid for pid, start in grant.reclaim.processes if process_id.lives(pid, start)]
        if not found:
            raise NotMoved("its processes have ended")
        return found

    async def _lock_all(self, grant: Grant, deadline_ns: int) -> None:
        """One time for all of them: none waits for another that is locked longer than that."""
        states = await self._states(grant)
        for pid in self._living(grant):
            if states.get(pid) != "running":
                continue
            left_ms = (deadline_ns - time.monotonic_ns()) // _NS_PER_MS
            if left_ms <= 0:
                raise NotMoved("its work did not complete in time")
            await self._checkpoint.lock(pid, left_ms)

    async def _keep_room(self, grant: Grant) -> None:
        until_ns = time.monotonic_ns() + _STAGING_NS
        while not memory_kind.keep_room(self._engine, grant) and time.monotonic_ns() < until_ns:
            await asyncio.sleep(_LOOK_S)

    async def _checkpoint_all(self, grant: Grant) -> None:
        states = await self._states(grant)
        with suppress(OSError):  # its container is gone meanwhile
            await self._keep_room(grant)
        for pid in self._living(grant):
            if states.get(pid) == "locked":
                await self._checkpoint.checkpoint(pid, self._patience(grant))

    def _patience(self, grant: Grant) -> Patience:
        return Patience(_copy_s(sum(grant.reclaim.bytes.values())), lambda: self._may_run(grant))

    def _may_run(self, grant: Grant) -> bool:
        try:
            return self._engine.sched(grant.tenant).why not in _WAITS_FOR_ONLINE
        except OSError:  # its container is gone meanwhile
            return True

    async def _restore_all(self, grant: Grant) -> None:
        states = await self._states(grant)
        for pid in self._living(grant):
            if states.get(pid) == "checkpointed":
                were = grant.reclaim.were.get(pid, ())
                now = (card.uuid for card in grant.cards)
                pairs = zip(were, now, strict=True) if were else ()
                await self._checkpoint.restore(pid, self._patience(grant), pairs)
        await self._unlock_all(grant)

    async def _unlock_all(self, grant: Grant) -> None:
        """They get memory from before they go on: the first thing that one does may be to ask for some.

        Lost where it kept what it got for the staging buffers.
        """
        with suppress(OSError):  # its container is gone meanwhile
            held = self.bytes_on_cards(grant)
            over = sum(max(0, held[card.index] - (card.memory_mib << 20)) for card in grant.cards)
            if over:
                raise Lost(f"it has kept {-(-over >> 20)} MiB beyond its cap")
            self._engine.reclaim(grant.tenant, closed=False)
        for pid, state in (await self._states(grant)).items():
            if state == "locked":
                await self._checkpoint.unlock(pid)

    async def _put_back(self, grant: Grant) -> None:
        """All of it on the cards again; what could not be stays evicted as a whole."""
        try:
            if "checkpointed" in (await self._states(grant)).values():
                await self._keep_room(grant)
            await self._restore_all(grant)
        except (Failed, OSError) as error:
            LOG.warning("not-put-back", container=grant.container_id, why=error)
            await self._forward(grant)
        except NotMoved:
            self._enter(grant, State.RUNNING)
        else:
            self._enter(grant, State.RUNNING)

    async def _forward(self, grant: Grant) -> None:
        """All of it off the cards again, from where each process is by now."""
        states = await self._states(grant)
        were = {pid: uuids for pid, uuids in grant.reclaim.were.items() if states.get(pid) == "checkpointed"}
        if were != grant.reclaim.were:
            self._enter(grant, grant.reclaim.state, were=were)
        try:
            await self._lock_all(grant, time.monotonic_ns() + _NS_PER_S)
            await self._checkpoint_all(grant)
        except NotMoved:
            self._enter(grant, State.RUNNING)
        except Failed as error:
            raise Lost(str(error)) from error
        else:
            self._enter(grant, State.EVICTED)

    async def _states(
        self, grant: Grant, processes: Iterable[tuple[int, int]] | None = None
    ) -> dict[int, str]:
        """By pid, once none is between two states. Lost where one has failed, or stays between two."""
        found = {}
        for pid, start in grant.reclaim.processes if processes is None else processes:
            if state := await self._state(grant, pid, start):
                found[pid] = state
        if "failed" in found.values():
            raise Lost("the driver could not move one of its processes")
        return {pid: state for pid, state in found.items() if process_id.lives(pid)}

    async def _state(self, grant: Grant, pid: int, start: int) -> str:
        """Empty: it has ended. Failed where the driver does not know it."""
        patience_ns = time.monotonic_ns() + _SEEN_TO_END_NS
        left_s = self._patience(grant).seconds
        while process_id.lives(pid, start):
            try:
                state = await self._checkpoint.state(pid)
            except Failed:
                if time.monotonic_ns() > patience_ns and not process_id.is_ending(pid):
                    raise
            else:
                if state not in _CHANGING:
                    return state
                left_s -= _LOOK_S if self._may_run(grant) else 0
                if left_s <= 0:
                    raise Lost(f"the driver does not end {state} one of its processes")
            await asyncio.sleep(_LOOK_S)
        return ""


def is_alive(grant: Grant) -> bool:
    """Whether any of the processes that were moved is there to be moved back."""
    return any(process_id.lives(pid, start) for pid, start in grant.reclaim.processes)


def _copy_s(size: int) -> float:
    return _COPY_LEAST_S + size / _SLOWEST_BYTES_PER_S
