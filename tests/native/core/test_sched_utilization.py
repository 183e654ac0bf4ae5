"""What a container is shown of its use of a card: the account behind it, in virtual time."""

import ctypes
from ctypes import Structure, byref, c_bool, c_int64, c_uint32, c_uint64

import pytest

from tests.native.scheduling import MS, S

SAMPLES, WHOLE = 72, 10000
SLOT = 10 * S // SAMPLES
START = 5000 * SLOT


class OfCard(Structure):
    _fields_ = [
        *((name, c_uint64) for name in ("noted_ns", "seen_ns", "used_ns")),
        ("slot", c_uint64 * (SAMPLES + 1)),
    ]


class Utilization(Structure):
    _fields_ = [
        ("kept", c_bool),
        ("wanted_until_ns", c_uint64),
        ("wall_ahead_ns", c_int64),
        ("card", OfCard * 32),
    ]


class Sample(Structure):
    _fields_ = [("end_ns", c_uint64), ("hundredths", c_uint32)]


class Account:
    """One tenant on one card, looked at every millisecond. `now` is the test's to move, too."""

    def __init__(self, library: ctypes.CDLL, most_percent: int = 100) -> None:
        self.library = library
        self.card = OfCard()
        self.now = START
        self.most_percent = most_percent
        self.note(0)

    def note(self, used: int) -> None:
        self.library.utilization_note(
            byref(self.card), c_uint64(self.now), c_int64(used), c_uint32(self.most_percent)
        )

    def goes_by(self, duration: int, part: float, look: int = MS) -> None:
        """So much time, of which the tenant has a part."""
        for _ in range(duration // look):
            self.now += look
            self.note(round(look * part))

    def nobody_looks(self, duration: int) -> None:
        self.library.utilization_pause(byref(self.card))
        self.now += duration

    def samples(self, *, idle: bool = False) -> list[tuple[int, int]]:
        """(end, hundredths of a percent), oldest first."""
        out = (Sample * SAMPLES)()
        count = self.library.utilization_read(byref(self.card), c_uint64(self.now), c_bool(idle), out)
        return [(sample.end_ns, sample.hundredths) for sample in out[:count]]

    def values(self, *, idle: bool = False) -> list[int]:
        return [value for _, value in self.samples(idle=idle)]


def test_part_of_the_cards_time_is_the_same_part_of_each_sample(sched: ctypes.CDLL) -> None:
    account = Account(sched)
    account.goes_by(4 * S, 0.25)
    ends = [end for end, _ in account.samples()]
    assert account.values() == [pytest.approx(WHOLE / 4, abs=1)] * (4 * S // SLOT)
    assert ends == list(range(START + SLOT, account.now, SLOT))
    assert account.now - ends[-1] < SLOT


def test_utilization_shows_begin_and_end_within_a_second(sched: ctypes.CDLL) -> None:
    account = Account(sched)
    account.goes_by(3 * S, 0)
    assert set(account.values()) == {0}
    account.goes_by(2 * SLOT + MS, 1)
    assert account.values()[-1] >= WHOLE // 8
    account.goes_by(S, 1)
    assert account.values()[-1] == WHOLE
    account.goes_by(S + SLOT, 0)
    assert account.values()[-1] == 0


def test_ring_has_the_last_ten_seconds(sched: ctypes.CDLL) -> None:
    account = Account(sched)
    account.goes_by(25 * S, 0.5)
    account.goes_by(5 * S, 0)
    values = account.values()
    assert len(values) == SAMPLES
    assert values[:20] == [pytest.approx(WHOLE / 2, abs=1)] * 20
    assert set(values[-20:]) == {0}


@pytest.mark.parametrize(
    ("quota", "part", "shown"), [(30, 0.3, WHOLE), (30, 0.15, WHOLE / 2), (50, 0.9, WHOLE)]
)
def test_tenant_that_is_bound_by_a_quota_sees_how_full_that_is(
    sched: ctypes.CDLL, quota: int, part: float, shown: float
) -> None:
    account = Account(sched, most_percent=quota)
    account.goes_by(3 * S, part)
    assert account.values()[-1] == pytest.approx(shown, rel=0.01)


def test_quota_that_is_used_in_bursts_is_full_all_the_same(sched: ctypes.CDLL) -> None:
    """21 ms on and 50 ms off: no time as short as a sample's has just 30 percent."""
    account = Account(sched, most_percent=30)
    while account.now < START + 5 * S:
        account.goes_by(21 * MS, 1)
        account.goes_by(49 * MS, 0)
    assert min(account.values()[7:]) >= 0.95 * WHOLE


def test_returned_time_is_not_utilization(sched: ctypes.CDLL) -> None:
    account = Account(sched)
    account.goes_by(S - S % SLOT, 0)
    account.goes_by(20 * MS, 1)
    account.now += MS
    account.note(-15 * MS)
    account.goes_by(SLOT, 0)
    assert max(account.values()) == pytest.approx(WHOLE * 5 * MS / SLOT / 7, abs=2)
    account.note(-S)
    account.goes_by(SLOT, 0)
    assert all(0 <= value <= WHOLE for value in account.values())


def test_late_poll_covers_the_time_since_the_last(sched: ctypes.CDLL) -> None:
    account = Account(sched)
    account.goes_by(2 * S, 0.5, look=700 * MS)
    assert account.values() == [pytest.approx(WHOLE / 2, abs=2)] * len(account.values())
    assert len(account.values()) >= 10
    account.now += 30 * S
    account.note(30 * S)
    assert account.values() == [0]


def test_unpolled_time_has_no_utilization(sched: ctypes.CDLL) -> None:
    account = Account(sched)
    account.goes_by(2 * S, 1)
    account.nobody_looks(3 * S)
    known = len(account.values())
    account.note(3 * S)
    assert len(account.values()) == known
    account.goes_by(S, 0.5)
    values, ends = account.values(), [end for end, _ in account.samples()]
    assert max(after - before for after, before in zip(ends[1:], ends, strict=False)) > 2 * S
    assert values[-1] == pytest.approx(WHOLE / 2, rel=0.02)


def test_entity_without_work_was_idle_while_unpolled(sched: ctypes.CDLL) -> None:
    account = Account(sched)
    account.goes_by(2 * S, 1)
    account.nobody_looks(2 * S)
    assert account.values(idle=True)[-1] == 0
    assert len(account.values(idle=True)) == SAMPLES
    fresh = Account(sched)
    assert fresh.samples() == [(START, 0)], (
        "nothing is known, and a ring without a sample is nothing to be read"
    )
    assert fresh.values(idle=True) == [0] * SAMPLES


def test_first_that_is_known_is_told_before_its_time_is_over(sched: ctypes.CDLL) -> None:
    account = Account(sched)
    account.goes_by(20 * MS, 1)
    assert account.samples() == [(account.now, WHOLE)]
    account.goes_by(SLOT, 1)
    assert account.samples() == [(START + SLOT, WHOLE)]


def test_utilization_query_expects_another(sched: ctypes.CDLL) -> None:
    made = Utilization()

    def want(now: int, until: int) -> bool:
        return bool(sched.utilization_want(byref(made), c_uint64(now), c_uint64(until)) & 0xFF)

    def wanted(now: int) -> bool:
        return bool(sched.utilization_wanted(byref(made), c_uint64(now)) & 0xFF)

    assert not wanted(1)
    assert want(1, 100)
    assert wanted(99)
    assert not want(50, 80), "the scheduler knows"
    assert wanted(99)
    assert not wanted(100)
    assert want(100, 200)


def test_sample_time_is_the_same_for_every_reader(sched: ctypes.CDLL) -> None:
    made = Utilization()
    sched.utilization_wall_ahead.restype = c_int64

    def ahead(now: int, wall: int) -> int:
        return int(sched.utilization_wall_ahead(byref(made), c_uint64(now), c_uint64(wall)))

    first = ahead(5 * S, 1_000_000 * S)
    assert first == 999_995 * S
    assert ahead(6 * S, 1_000_001 * S + 3 * MS) == first, "the two clocks are not read at once"
    assert ahead(7 * S, 1_003_602 * S) == 1_003_595 * S, "the wall clock was set"
