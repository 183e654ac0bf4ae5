"""The memory that a real driver takes by itself for a channel group, which it does not report. It comes from
node.toml, from the previous mgpud, from a measurement while nothing is on the card, or it is a value that is
surely enough.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from native_sched.daemon.log import LOG, Log
from native_sched.daemon.node.config import NodeConfig
from native_sched.daemon.node.inventory import CardInfo

_MIB = 1 << 20
# Preemption by instruction saves each multiprocessor's registers and shared memory: 66 MiB on an H100, which
# has the most. As much again for all else.
UNMEASURED_BYTES = 128 * _MIB
UNMEASURED_COPY_BYTES = 2 * _MIB
# More than this is another's memory that came in between.
_MOST_BYTES = 2048 * _MIB


class Driver(Protocol):
    def context_bytes(self, minor: int, *, copies: bool) -> int: ...


@dataclass(frozen=True)
class Contexts:
    """In bytes, of the graphics engine and of a copy engine."""

    graphics: int
    copies: int


UNMEASURED = Contexts(UNMEASURED_BYTES, UNMEASURED_COPY_BYTES)


def _measured(driver: Driver, card: CardInfo, log: Log) -> Contexts | None:
    try:
        if card.instance:
            raise OSError("groups of a MIG instance are made by those who have subscribed to it")
        found = Contexts(
            driver.context_bytes(card.minor, copies=False), driver.context_bytes(card.minor, copies=True)
        )
        if not 0 < found.graphics <= _MOST_BYTES or found.copies > _MOST_BYTES:
            raise OSError(f"{found.graphics} and {found.copies} bytes are not believed")
    except OSError as error:
        log.warning(
            "context-not-measured",
            card=card.index,
            why=error.strerror or error,
            charged_mib=UNMEASURED_BYTES // _MIB,
            risk="what the driver takes for a channel group may be more",
        )
        return None
    log.info(
        "context-measured",
        card=card.index,
        graphics_bytes=found.graphics,
        copies_bytes=found.copies,
    )
    return found


def of_cards(
    driver: Driver,
    cards: Iterable[CardInfo],
    config: NodeConfig,
    known: dict[str, list[int]],
    log: Log = LOG,
) -> tuple[list[CardInfo], dict[str, list[int]]]:
    """The cards with it, and what to write down for the next mgpud, by UUID.

    known: what the one before wrote down: by now there may be containers on the cards.
    """
    with_it, found = [], dict[str, list[int]]()
    for card in cards:
        if config.context_mib:
            of = Contexts(config.context_mib * _MIB, config.copy_context_mib * _MIB)
        elif card.uuid in known:
            of = Contexts(*known[card.uuid])
            found[card.uuid] = known[card.uuid]
        elif measured := _measured(driver, card, log):
            of = measured
            found[card.uuid] = [of.graphics, of.copies]
        else:
            of = UNMEASURED
        with_it.append(replace(card, context_bytes=of.graphics, copy_context_bytes=of.copies))
    return with_it, found
