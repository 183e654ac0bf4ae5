"""Other cards for an evicted container: its account goes to cards where it was granted nothing, and its data
follows with its restoration. An evicted container has nothing on either, so the account is moved at once, and
one document says where it is.
"""

import errno
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace

from native_sched.daemon.engine_abi import NodeKind
from native_sched.daemon.grants.grants import Grant, Reclaim
from native_sched.daemon.grants.refusals import LEAST_DRIVER_FOR_OTHERS, older, refuse
from native_sched.daemon.grants.served import Served
from native_sched.daemon.log import LOG
from oci_specs.request import Memory, Request
from placement.cards import CardShare
from placement.place import card_named, place

_CALLS_END_WITHIN_S, _LOOK_S = 0.05, 0.001


def plan(
    served: Served, grant: Grant, names: Sequence[str], *, driver_version: str, closed: Collection[int]
) -> tuple[CardShare, ...]:
    """The container's share of the named cards, as much as it has now; Refusal."""
    others = served.card_states([other for other in served.grants if other is not grant])
    chosen = {card.index: card for card in (card_named(name, others) for name in names)}
    if len(chosen) != len(grant.cards):
        raise refuse("another-count", grant, named=len(chosen), count=len(grant.cards))
    kept = [card for card in grant.cards if card.index in chosen]
    new = [card for index, card in chosen.items() if not grant.has_card(index)]
    if not new:
        return grant.cards
    if older(driver_version, LEAST_DRIVER_FOR_OTHERS):
        raise refuse("driver-restores-in-place", driver=driver_version, least=LEAST_DRIVER_FOR_OTHERS)
    instances = {card.index for card in served.cards if card.instance is not None}
    left = next(card for card in grant.cards if card.index not in chosen)
    for card in new:
        if card.index in closed:
            raise refuse("card-closed", card=card.index, uuid=card.uuid)
        if card.index in instances:
            raise refuse("resume-on-instance", card=card.index, uuid=card.uuid)
        if card.name != left.name:
            raise refuse("another-model", card=card.index, model=card.name, left=left.name)
        if not any(node.kind == NodeKind.CARD and node.minor == card.minor for node in grant.nodes):
            raise refuse("no-node", grant, card=card.index)
    core = left.core_percent
    placed = place(
        Request(
            qos=grant.qos,
            policy=grant.policy,
            count=len(new),
            uuids=tuple(card.uuid for card in new),
            memory=Memory(mib=left.memory_mib * len(new)),
            core_percent=None if core is None else core * len(new),
            reclaimable=grant.reclaimable,
        ),
        others,
        served.config,
    )
    return tuple(sorted([*kept, *placed.cards], key=lambda card: card.index))


def sizes_on(grant: Grant, cards: Sequence[CardShare]) -> dict[int, int]:
    """Its memory, on those cards instead: the first one's on the first one."""
    sizes = grant.reclaim.bytes
    return {
        new.index: sizes[old.index]
        for old, new in zip(grant.cards, cards, strict=True)
        if old.index in sizes
    }


def _moved(grant: Grant, cards: Sequence[CardShare]) -> Reclaim:
    """Its memory is of the cards where it was; it is restored as soon as there is room."""
    before, after = (tuple(card.uuid for card in each) for each in (grant.cards, cards))
    were = {pid: grant.reclaim.were.get(pid, before) for pid, _ in grant.reclaim.processes}
    return replace(
        grant.reclaim,
        bytes=sizes_on(grant, cards),
        were={pid: uuids for pid, uuids in were.items() if uuids != after},
        by_hand=False,
    )


def apply(served: Served, grant: Grant, cards: tuple[CardShare, ...]) -> None:
    """The evicted container is granted these cards instead of its own; Refusal, with nothing changed."""
    before = grant.cards, grant.reclaim
    there, here = {card.index for card in cards}, {card.index for card in grant.cards}
    pairs = list(zip(sorted(here - there), sorted(there - here), strict=True))
    reclaim = _moved(grant, cards)
    record = served.store.prepare([replace(grant, cards=cards, reclaim=reclaim)])
    moved: list[tuple[int, int]] = []
    try:
        for old, new in pairs:
            _move(served, grant, old, new)
            moved.append((old, new))
        grant.cards, grant.reclaim = cards, reclaim
        _give_nodes(served, grant)
        served.scheduling.apply()
        record.commit()
    except OSError as error:
        record.abandon()
        grant.cards, grant.reclaim = before
        with suppress(OSError):
            for old, new in moved:
                _move(served, grant, new, old)
            _give_nodes(served, grant)
            served.scheduling.apply()
        row = "holds-card" if error.errno == errno.EBUSY else "cards-not-taken"
        raise refuse(row, grant, error=error.strerror) from error
    if pairs:
        was, now = (" ".join(card.uuid for card in each) for each in (before[0], cards))
        LOG.info("other-gpus", container=grant.container_id, was=was, gpus=now)


def _move(served: Served, grant: Grant, old: int, new: int) -> None:
    until_s = time.monotonic() + _CALLS_END_WITHIN_S
    while True:
        try:
            return served.engine.move(grant.tenant, old, new)
        except OSError as error:
            if error.errno != errno.EAGAIN or time.monotonic() > until_s:
                raise
        time.sleep(_LOOK_S)


def _give_nodes(served: Served, grant: Grant) -> None:
    for node in grant.own_nodes:
        served.engine.add_node(grant.tenant, *node)
