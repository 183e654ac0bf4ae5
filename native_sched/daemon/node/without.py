"""What the scheduler does without on a card: its driver refuses it, or it cannot be seen.

Each is said once in the log, with RM's status or the errno, and in words to `mgpu health`.
"""

import errno
import os
from collections.abc import Sequence

from native_sched.daemon.engine import Engine
from native_sched.daemon.engine_abi import Without
from native_sched.daemon.log import LOG
from native_sched.daemon.node.inventory import CardInfo

# What becomes of it, for operators.
INSTEAD = {
    Without.DISABLE_CHANNELS: "each group is taken off its runlist by a call of its own, 16 of a container at most on "
    "a GPU; no document says that its work has stopped when that returns",
    Without.TIMESLICES: "suspension alone keeps offline from online's work",
    Without.GROUP_IDS: "what such a group executes counts as another's",
    Without.USERD: "a container with such a channel counts as having work for as long as it is there",
    Without.ENGINE_STATUS: "online is seen idle by RM's samples of the GPU's use, a quarter of a second later; "
    "offline is never seen idle; a chip without a row of facts is such a GPU",
    Without.UTILIZATION: "online is seen idle by fetch only, so a long kernel may share the GPU with offline",
}


def name(what: Without) -> str:
    return what.name.lower().replace("_", "-")


def of(engine: Engine, card: int) -> list[str]:
    """The names of what that card is without."""
    return [name(what) for what in engine.without(card)]


def why(reason: int) -> str:
    if reason == -errno.ENOMSG:
        return "work was submitted, and no status has named the group of a container that executes"
    return f"RM's status {reason:#x}" if reason > 0 else os.strerror(-reason)


class Told:
    """Says each in the log, once."""

    def __init__(self, engine: Engine, cards: Sequence[CardInfo]) -> None:
        self._engine = engine
        self._cards = cards
        self._known: set[tuple[int, Without]] = set()

    def look(self) -> None:
        for card in [card.index for card in self._cards]:
            for what, reason in self._engine.without(card).items():
                if (card, what) not in self._known:
                    self._known.add((card, what))
                    LOG.warning(
                        "driver-without", card=card, what=name(what), why=why(reason), so=INSTEAD[what]
                    )


def lines(engine: Engine, cards: Sequence[CardInfo]) -> list[str]:
    """In words, a line for each thing that some card is without."""
    found: dict[Without, list[int]] = {}
    for card in cards:
        for what in engine.without(card.index):
            found.setdefault(what, []).append(card.index)
    return [
        f"{name(what)} not on GPU {', '.join(map(str, where))}: {INSTEAD[what]}"
        for what, where in sorted(found.items())
    ]
