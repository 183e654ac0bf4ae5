"""The memory of a card over several tenants, under every order of events: what was granted is never lent for
good, and what is lent is never more than there is.
"""

import ctypes
import errno
from ctypes import Structure, byref, c_bool, c_int, c_uint32, c_uint64

from hypothesis import given
from hypothesis import strategies as st

from tests.native.books import Ledger

ONLINE, KEPT, RECLAIMABLE = 1, 2, 3
TOTAL = 1000


class CardMemory(Structure):
    _fields_ = [
        *((name, c_uint64) for name in ("total", "taken", "used", "reclaimable")),
        ("demands", c_uint32),
        ("restorations", c_uint32),
    ]


class Tenants:
    """An online one, one that keeps what it has, and two that give way, on one card."""

    KINDS = (ONLINE, KEPT, RECLAIMABLE, RECLAIMABLE)

    def __init__(self, core: ctypes.CDLL) -> None:
        core.ledger_free_bytes.restype = c_uint64
        self.core = core
        self.card = CardMemory(total=TOTAL)
        self.ledgers = [Ledger(cap=cap) for cap in (600, 200, 700, 700)]
        for ledger, kind in zip(self.ledgers, self.KINDS, strict=True):
            core.ledger_join(byref(ledger), byref(self.card), c_int(kind))

    def take(self, who: int, size: int) -> int:
        ledger = byref(self.ledgers[who])
        error = int(self.core.ledger_reserve(ledger, c_uint64(size)))
        return error or int(self.core.ledger_commit(ledger, c_uint64(size), c_uint64(size)))

    def give(self, who: int, size: int) -> None:
        size = min(size, self.ledgers[who].used)
        self.core.ledger_release(byref(self.ledgers[who]), c_uint64(size))

    def reclaim(self, who: int, closed: bool, room: int) -> int:
        return int(self.core.ledger_reclaim(byref(self.ledgers[who]), c_bool(closed), c_uint64(room)))

    def free(self, who: int) -> int:
        return int(self.core.ledger_free_bytes(byref(self.ledgers[who])))

    def part(self, who: int) -> int:
        ledger = self.ledgers[who]
        part: int = max(ledger.used, ledger.cap if self.KINDS[who] == KEPT else ledger.room)
        return part


def test_unused_online_memory_is_lent_and_kept_memory_is_not(core: ctypes.CDLL) -> None:
    tenants = Tenants(core)
    assert tenants.free(2) == 700
    assert tenants.take(2, 700) == 0
    assert tenants.free(3) == 100
    assert tenants.take(3, 101) == -errno.ENOMEM
    assert tenants.take(1, 200) == 0, "its cap was never lent"


def test_online_is_granted_what_is_lent(core: ctypes.CDLL) -> None:
    tenants = Tenants(core)
    assert tenants.take(2, 700) == 0
    assert tenants.free(0) == 600
    assert tenants.take(0, 600) == 0
    assert tenants.free(2) == 0
    assert tenants.take(2, 1) == -errno.ENOMEM


def test_while_online_waits_nothing_is_lent(core: ctypes.CDLL) -> None:
    tenants = Tenants(core)
    tenants.card.demands = 1
    assert tenants.free(2) == 0
    assert tenants.take(2, 1) == -errno.ENOMEM
    tenants.card.demands = 0
    assert tenants.take(2, 1) == 0


def test_waiting_calls_demand_what_the_cap_leaves(core: ctypes.CDLL) -> None:
    tenants = Tenants(core)
    online = tenants.ledgers[0]
    core.ledger_demand_bytes.restype = c_uint64
    online.demanded = 50
    assert core.ledger_demand_bytes(byref(online)) == 50
    core.ledger_reserve(byref(online), c_uint64(590))
    assert core.ledger_demand_bytes(byref(online)) == 50, "its own call is being tried"
    core.ledger_commit(byref(online), c_uint64(590), c_uint64(0))
    online.demanded = 16 * 600
    assert core.ledger_demand_bytes(byref(online)) == 600
    assert tenants.take(0, 500) == 0
    assert core.ledger_demand_bytes(byref(online)) == 100


def test_memory_is_lacking_where_little_is_left(core: ctypes.CDLL) -> None:
    tenants = Tenants(core)
    core.card_memory_lacks.restype = c_bool
    unreported = TOTAL // 16
    assert tenants.take(2, 500) == 0
    assert not core.card_memory_lacks(byref(tenants.card), c_uint64(500 - unreported))
    assert core.card_memory_lacks(byref(tenants.card), c_uint64(501 - unreported))
    assert tenants.take(0, 500) == 0
    assert core.card_memory_lacks(byref(tenants.card), c_uint64(1))
    assert core.card_memory_lacks(byref(tenants.card), c_uint64(2**64 - 1))


def test_room_for_a_restoration_is_no_others(core: ctypes.CDLL) -> None:
    tenants = Tenants(core)
    assert tenants.reclaim(2, True, 500) == 0
    assert tenants.take(3, 301) == -errno.ENOMEM
    assert tenants.take(0, 301) == -errno.EAGAIN, "online waits for its end"
    assert tenants.take(0, 300) == 0
    assert tenants.take(2, 500) == 0
    assert tenants.take(2, 1) == -errno.ENOMEM
    assert tenants.reclaim(2, False, 0) == 0
    assert tenants.card.restorations == 0


def test_restoration_may_take_more_than_was_given_back_where_that_is_free(core: ctypes.CDLL) -> None:
    tenants = Tenants(core)
    assert tenants.reclaim(2, True, 500) == 0
    assert tenants.take(2, 550) == 0
    tenants.card.demands = 1
    assert tenants.take(2, 1) == -errno.ENOMEM
    tenants.card.demands = 0
    assert tenants.reclaim(2, True, 0) == 0
    assert tenants.take(2, 1) == -errno.ENOMEM, "an evicted one gets nothing"


def test_one_whose_memory_is_its_own_gets_none_while_it_is_away_and_comes_back(core: ctypes.CDLL) -> None:
    tenants = Tenants(core)
    alone = Ledger(cap=600)
    core.ledger_join(byref(alone), None, c_int(0))
    tenants.ledgers.append(alone)
    for who in (0, 1, 4):
        assert tenants.reclaim(who, True, 0) == 0
        assert tenants.free(who) == 0
        assert tenants.take(who, 1) == -errno.ENOMEM
    assert tenants.take(2, 700) == 0
    assert tenants.reclaim(0, True, 200) == -errno.ENOSPC, "what is lent has to be evicted first"
    tenants.give(2, 100)
    for who in (0, 1, 4):
        assert tenants.reclaim(who, True, 200) == 0
    assert tenants.take(2, 1) == -errno.ENOMEM
    for who in (0, 1, 4):
        assert tenants.take(who, 200) == 0
        assert tenants.reclaim(who, False, 0) == 0
        assert tenants.free(who) == tenants.ledgers[who].cap - 200
    assert tenants.card.restorations == 0


def test_without_room_nothing_changes(core: ctypes.CDLL) -> None:
    tenants = Tenants(core)
    tenants.take(0, 600)
    before = tenants.card.taken
    assert tenants.reclaim(2, True, 201) == -errno.ENOSPC
    assert (tenants.card.taken, tenants.ledgers[2].closed) == (before, False)


events = st.lists(
    st.tuples(
        st.sampled_from(["take", "take", "give", "reclaim", "cap", "leave"]),
        st.integers(0, 3),
        st.integers(0, 800),
    ),
    max_size=60,
)


@given(events)
def test_parts_add_up_and_lent_memory_fits(core: ctypes.CDLL, events: list[tuple[str, int, int]]) -> None:
    tenants = Tenants(core)
    for what, who, size in events:
        before = tenants.card.taken
        if what == "take":
            free = tenants.free(who)
            error = tenants.take(who, size)
            assert (error == 0) == (size <= free) or (who == 0 and error == -errno.EAGAIN)
            if who >= 2 and error == 0 and tenants.card.taken > before:
                assert tenants.card.taken <= TOTAL
        elif what == "give":
            tenants.give(who, size)
        elif what == "reclaim":
            tenants.reclaim(who, size % 2 == 1, size if size % 3 == 0 else 0)
        elif what == "cap":
            core.ledger_set_cap(byref(tenants.ledgers[who]), c_uint64(size))
        assert tenants.card.taken == sum(map(tenants.part, range(4)))
        assert tenants.card.used == sum(ledger.used for ledger in tenants.ledgers)
        assert tenants.card.reclaimable == sum(tenants.ledgers[i].used for i in (2, 3))
        assert tenants.card.restorations == sum(ledger.room > 0 for ledger in tenants.ledgers)
    for ledger in tenants.ledgers:
        core.ledger_join(byref(ledger), None, c_int(0))
    assert (tenants.card.taken, tenants.card.used, tenants.card.reclaimable) == (0, 0, 0)
    assert tenants.card.restorations == 0
