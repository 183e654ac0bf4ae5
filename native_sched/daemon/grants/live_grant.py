"""Changing what a running container was granted: its class, its share and its memory."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from native_sched.daemon.grants import memory_kind, naming
from native_sched.daemon.grants.grants import Grant, ReclaimState
from native_sched.daemon.grants.refusals import refuse
from native_sched.daemon.grants.served import Served
from oci_specs.refusal import Refusal
from oci_specs.request import Qos
from oci_specs.vocabulary import DEFAULT_POLICY
from placement import room
from placement.cards import CardShare, CardState

_MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Intent:
    """What is to become of a container; None: as it is. Totals over its cards, as at admission."""

    qos: Qos | None = None
    core_percent: int | None = None
    memory_mib: int | None = None


@dataclass(frozen=True)
class Change:
    """What a grant becomes."""

    qos: Qos
    cards: tuple[CardShare, ...]


def plan(
    grant: Grant, intent: Intent, others: Mapping[int, CardState], held_mib: Mapping[int, int]
) -> Change:
    """What the intent makes of the grant; Refusal when any part of it cannot be.

    others: the node's cards as if this container were not there; held_mib: what it holds now on each of its
    cards, rounded up.
    """
    if grant.state == "draining":
        raise refuse("draining", grant)
    if not grant.cards:
        raise refuse("no-card", grant)
    if grant.reclaimable and intent.qos == "online":
        raise refuse("class-of-reclaimable", grant)
    if intent.memory_mib is not None and grant.reclaim.state != ReclaimState.RUNNING:
        raise refuse("not-running", grant, state=grant.reclaim.state)
    if grant.whole_cards and (intent.core_percent is not None or intent.memory_mib is not None):
        raise refuse("whole-cards", grant)
    cards = grant.cards
    if intent.memory_mib is not None:
        each = _each("memory-mib", intent.memory_mib, len(cards))
        for card in cards:
            _check_memory(grant, card, each, others[card.index], held_mib[card.index])
        cards = tuple(replace(card, memory_mib=each) for card in cards)
    if intent.core_percent is not None:
        each = _each("core", intent.core_percent, len(cards))
        if each > 100:
            counted = "1 GPU" if len(cards) == 1 else f"{len(cards)} GPUs"
            raise refuse("core-over-cards", total=intent.core_percent, cards=counted, most=100 * len(cards))
        cards = tuple(replace(card, core_percent=each) for card in cards)
    qos = intent.qos or grant.qos
    if qos != grant.qos or intent.core_percent is not None:
        for card in cards:
            _check_core(grant, card, qos, others[card.index])
    return Change(qos, cards)


def _each(key: str, total: int, count: int) -> int:
    if total % count:
        raise refuse("not-even", key=key, total=total, count=count)
    return total // count


def _check_memory(grant: Grant, card: CardShare, asked_mib: int, others: CardState, held_mib: int) -> None:
    count = len(grant.cards)
    least = room.least_mib(count)
    if asked_mib < least:
        raise refuse("memory-below-least", asked=asked_mib, least=least, total=least * count)
    if asked_mib < held_mib:
        raise _memory_held(grant, card, asked_mib, held_mib)
    free = others.free_for(grant.qos, reclaimable=grant.reclaimable)
    if asked_mib > free:
        raise refuse(
            "memory-full",
            asked=asked_mib,
            size=others.memory_mib,
            card=others.index,
            granted=others.memory_mib - free,
            free=free,
            each=_a_card(grant),
        )


def _memory_held(grant: Grant, card: CardShare, asked_mib: int, held_mib: int) -> Refusal:
    return refuse("memory-held", grant, asked=asked_mib, held=held_mib, card=card.index, each=_a_card(grant))


def _a_card(grant: Grant) -> str:
    return " a GPU" if len(grant.cards) > 1 else ""


def _check_core(grant: Grant, card: CardShare, qos: Qos, others: CardState) -> None:
    policy = others.policy or DEFAULT_POLICY
    free = room.free_core(others, qos, policy)
    least = room.least_part_percent(policy)
    if (least if card.core_percent is None else card.core_percent) > free:
        core = card.core_percent
        raise refuse(
            "core-full",
            asked=f"a part of what {qos} containers leave" if core is None else f"core {core}",
            qos=qos,
            free=free,
            card=card.index,
            hint=f"ask for at most core {free}{_a_card(grant)}, " if free else "",
        )


class LiveGrant:
    """Carries changes out: all of one or nothing."""

    def __init__(self, served: Served) -> None:
        self._served = served

    def change(self, message: Mapping[str, Any]) -> Grant:
        """Does what a `set` message asks; Refusal, with nothing changed, if a part cannot be done."""
        grant = naming.find(list(self._served.grants), message["container"])
        intent = Intent(
            qos=message.get("class"),
            core_percent=message.get("core_percent"),
            memory_mib=message.get("memory_mib"),
        )
        others = self._served.card_states([other for other in self._served.grants if other is not grant])
        held = {card.index: self._held_mib(grant, card.index) for card in grant.cards}
        change = plan(grant, intent, {state.index: state for state in others}, held)
        before = Change(grant.qos, grant.cards)
        record = self._served.store.prepare([replace(grant, qos=change.qos, cards=change.cards)])
        try:
            self._cap(grant, change.cards)
            grant.qos, grant.cards = change.qos, change.cards
            if change.qos != before.qos:
                memory_kind.tell(self._served.engine, self._served.config, grant)
            self._served.scheduling.apply()
            record.commit()
        except OSError as error:
            self._undo(grant, before)
            record.abandon()
            raise refuse("change-not-taken", grant, error=error.strerror) from error
        except BaseException:
            self._undo(grant, before)
            record.abandon()
            raise
        return grant

    def _cap(self, grant: Grant, cards: Sequence[CardShare]) -> None:
        """Sets the caps. The container allocates meanwhile: whether it holds more is asked again under the
        new cap, from which on it gets no more.
        """
        for card in cards:
            self._served.engine.grant(grant.tenant, card.index, card.memory_mib * _MIB)
            held_mib = self._held_mib(grant, card.index)
            if held_mib > card.memory_mib:
                raise _memory_held(grant, card, card.memory_mib, held_mib)

    def _undo(self, grant: Grant, before: Change) -> None:
        was = grant.qos
        grant.qos, grant.cards = before.qos, before.cards
        with suppress(OSError):
            for card in before.cards:
                self._served.engine.grant(grant.tenant, card.index, card.memory_mib * _MIB)
            if grant.qos != was:
                memory_kind.tell(self._served.engine, self._served.config, grant)
            self._served.scheduling.apply()

    def _held_mib(self, grant: Grant, card: int) -> int:
        usage = self._served.engine.usage(grant.tenant, card)
        return -(-int(usage.used_bytes + usage.reserved_bytes) // _MIB)
