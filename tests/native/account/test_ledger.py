"""The memory account under every order of events: never above the cap, nothing lost, nothing counted
twice."""

import ctypes
import errno
from ctypes import byref, c_uint64

from hypothesis import given
from hypothesis import strategies as st

from tests.native.books import Ledger

MIB = 1 << 20


def reserve(core: ctypes.CDLL, ledger: Ledger, size: int) -> int:
    return int(core.ledger_reserve(byref(ledger), c_uint64(size)))


def commit(core: ctypes.CDLL, ledger: Ledger, reserved: int, actual: int) -> int:
    return int(core.ledger_commit(byref(ledger), c_uint64(reserved), c_uint64(actual)))


def test_last_byte_fits_and_one_more_does_not(core: ctypes.CDLL) -> None:
    ledger = Ledger(cap=4309 * MIB)
    assert reserve(core, ledger, 4309 * MIB) == 0
    assert reserve(core, ledger, 1) == -errno.ENOMEM
    assert commit(core, ledger, 4309 * MIB, 4309 * MIB) == 0
    assert (ledger.used, ledger.reserved) == (4309 * MIB, 0)


def test_sizes_that_would_wrap_around_are_refused(core: ctypes.CDLL) -> None:
    ledger = Ledger(cap=MIB, used=MIB // 2)
    assert reserve(core, ledger, 2**64 - 1) == -errno.ENOMEM
    assert reserve(core, ledger, 2**64 - MIB // 2) == -errno.ENOMEM
    assert ledger.reserved == 0


def test_surplus_over_the_cap_is_not_charged_at_all(core: ctypes.CDLL) -> None:
    ledger = Ledger(cap=100)
    assert reserve(core, ledger, 60) == 0
    assert commit(core, ledger, 60, 101) == -errno.ENOMEM
    assert (ledger.used, ledger.reserved) == (0, 0)


def test_lowered_cap_leaves_nothing_free(core: ctypes.CDLL) -> None:
    core.ledger_free_bytes.restype = c_uint64
    assert core.ledger_free_bytes(byref(Ledger(cap=10, used=30))) == 0


events = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "commit", "cancel", "release"]),
        st.integers(0, 2**64 - 1) | st.integers(0, 1000),
    ),
    max_size=60,
)


@given(cap=st.integers(0, 5000), steps=events, surplus=st.integers(0, 64))
def test_random_events_keep_the_ledger_within_its_cap(
    core: ctypes.CDLL, cap: int, steps: list[tuple[str, int]], surplus: int
) -> None:
    ledger = Ledger(cap=cap)
    open_reservations: list[int] = []
    charges: list[int] = []
    peak = 0
    for what, size in steps:
        held = sum(open_reservations) + sum(charges)
        if what == "reserve":
            ok = reserve(core, ledger, size) == 0
            assert ok == (size <= cap - held)
            if ok:
                open_reservations.append(size)
        elif what in ("commit", "cancel") and open_reservations:
            reserved = open_reservations.pop(size % len(open_reservations))
            actual = 0 if what == "cancel" else reserved + surplus
            fits = actual <= cap - (held - reserved)
            assert (commit(core, ledger, reserved, actual) == 0) == fits
            if fits:
                charges.append(actual)
        elif what == "release" and charges:
            core.ledger_release(byref(ledger), c_uint64(charges.pop(size % len(charges))))
        peak = max(peak, sum(open_reservations) + sum(charges))
        assert ledger.used == sum(charges)
        assert ledger.reserved == sum(open_reservations)
        assert ledger.used + ledger.reserved <= cap
        assert ledger.peak == peak
