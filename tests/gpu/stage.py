"""What a stage of the run is: a question, the verdict that is hoped for, and what it may take."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class Where(Enum):
    """What a stage works on, and what is therefore running meanwhile."""

    MACHINE = "the machine"
    DRIVER = "the driver, with a supervisor of our own and no mgpud"
    UNSCHEDULED = "mgpu with schedule = false"
    MGPU = "mgpu"
    LENDS = "mgpu with offline_overcommit = true"
    BLIND = "mgpu, which cannot map the card's registers"


@dataclass(frozen=True, kw_only=True)
class Stage:
    """passes: the verdict with which it passes; others are answers too, but of a card on which mgpu has to be
    changed.

    do: gets what `where` says, the results so far and its own. limit_s: it is killed then, and the next one
    begins.
    """

    name: str
    answers: str
    passes: str
    limit_s: int
    where: Where
    do: Callable[..., None]


class CannotSayError(Exception):
    """Not here: what is missing, in one line."""
