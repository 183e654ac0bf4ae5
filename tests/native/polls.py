"""The loop's polls in virtual time (poll_in_time.c), and tenants whose work they see."""

import ctypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from native_sched.daemon.engine_abi import Without
from tests.native import engine_parts

US = 1000
MS = 1000 * US
S = 1000 * MS
POLL, QUIET, HOLD = 500 * US, 5 * MS, 100 * MS
# Polls in a row that see no work.
IDLE_POLLS = 3
# With a number between each two, which none of their groups has.
ON, OFF, OFF_TOO, GANG = 1, 3, 5, 7
BLIND, SEEN = 0, 1
SAMPLE = 139 * MS
# Of a channel that does not say what is fetched.
QUIET_BY_PUT = 10 * QUIET


@dataclass
class Polls:
    lib: ctypes.CDLL
    now: int = 0

    def tenant(self, id: int, *cards: int, online: bool = False) -> None:
        assert self.lib.poll_tenant(id, online, sum(1 << card for card in cards)) == 0

    def has(self, id: int, put: int, get: int, card: int = BLIND) -> None:
        self.lib.poll_userd(id, card, put, get)

    def unnumbered(self, card: int = BLIND) -> None:
        """By which numbers its engines name groups is to be learned."""
        self.lib.poll_numbered(card, 0)

    def group(self, id: int, number: int, card: int = BLIND) -> None:
        """One more of the tenant's, without channels."""
        self.lib.poll_group(id, card, number)

    def by_put(self, id: int) -> None:
        self.lib.poll_by_put(id)

    def engine(self, card: int, engines: int, group: int = 0) -> None:
        self.lib.poll_engine(card, engines, group)

    def sampled(self, at: int, *, used: bool = False, error: int = 0, card: int = BLIND) -> None:
        """RM's newest sample is of then."""
        self.lib.poll_samples(card, error, ctypes.c_uint64(at), used)

    def without(self, kind: Without, card: int = BLIND) -> int:
        return int(self.lib.poll_without(card, kind))

    def sampling(self, until: int, *, used: bool) -> None:
        """RM samples seven times a second until then."""
        while self.now < until:
            self.sampled(self.now - 1, used=used)
            self.to(self.now + SAMPLE)

    def release(self, card: int, released: bool = True) -> None:
        self.lib.poll_release(card, released)

    @property
    def polls(self) -> int:
        return int(self.lib.poll_count())

    def at(self, now: int) -> None:
        """A poll."""
        self.now = now
        self.lib.poll_at(ctypes.c_uint64(now))

    def to(self, now: int) -> None:
        """Polls until just before then."""
        while self.now + POLL < now:
            self.at(self.now + POLL)

    def busy(self, id: int, card: int = BLIND) -> bool:
        return bool(self.lib.poll_busy(id, card))

    def enabled(self, id: int) -> bool:
        found = self.lib.poll_enabled(id)
        assert found >= 0
        return bool(found)


@cache
def _library() -> ctypes.CDLL:
    beside = Path(__file__).with_name("poll_in_time.c")
    return ctypes.CDLL(engine_parts.library("libpoll.so", beside, without="state.c"))


def polls(quiet: int = QUIET) -> Polls:
    """Of offline with work that is never over on a card that cannot be seen, and online that has submitted
    some."""
    lib = _library()
    lib.poll_begin(ctypes.c_uint64(quiet), ctypes.c_uint64(HOLD))
    made = Polls(lib)
    made.tenant(OFF, BLIND)
    made.tenant(ON, BLIND, online=True)
    made.has(OFF, 9, 3)
    made.at(POLL)
    assert made.enabled(OFF)
    made.has(ON, 1, 0)
    made.at(2 * POLL)
    assert made.busy(ON)
    assert not made.enabled(OFF)
    return made


def fetched(here: Polls, put: int = 1) -> int:
    """When the next poll finds all of it fetched."""
    here.has(ON, put, put)
    here.at(here.now + POLL)
    return here.now


def executed(here: Polls, card: int = BLIND) -> int:
    """When the next poll sees none of online's work any more, on a card whose engines have shown it."""
    here.engine(card, 1, ON)
    here.at(here.now + POLL)
    here.engine(card, 1)
    here.at(here.now + POLL)
    return here.now
