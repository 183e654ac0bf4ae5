"""When online is seen to have no work where its engines are not seen, in virtual time: by RM's samples."""

import errno

import pytest

from native_sched.daemon.engine_abi import Without
from tests.native.polls import (
    BLIND,
    HOLD,
    MS,
    OFF,
    OFF_TOO,
    ON,
    POLL,
    QUIET,
    SAMPLE,
    SEEN,
    Polls,
    S,
    executed,
    fetched,
    polls,
)


@pytest.fixture
def here() -> Polls:
    return polls()


@pytest.mark.parametrize("by_put", [False, True])
def test_kernel_of_online_keeps_offline_off_a_blind_card_for_as_long_as_rm_sees_it(
    here: Polls, by_put: bool
) -> None:
    if by_put:
        here.by_put(ON)
    here.sampled(1)
    since = fetched(here)
    here.sampling(since + 5 * S, used=True)
    assert here.busy(ON)
    assert not here.enabled(OFF)
    # It has ended. The sample that it ended in, one without it, and the polls that see that.
    here.sampled(here.now, used=True)
    here.to(here.now + SAMPLE)
    assert here.busy(ON)
    here.sampled(here.now)
    here.to(here.now + 10 * MS + 2 * POLL)
    assert not here.busy(ON)
    here.to(here.now + HOLD)
    assert here.enabled(OFF)


def test_sample_that_may_have_begun_before_online_was_quiet_proves_nothing(here: Polls) -> None:
    here.sampled(1)
    since = fetched(here)
    here.to(since + S)
    assert here.busy(ON), "it is older"
    here.sampled(2)
    here.to(here.now + S)
    assert here.busy(ON), "it is the first that is newer"
    here.sampled(3)
    here.to(here.now + 10 * MS + 2 * POLL)
    assert not here.busy(ON)


def test_online_that_works_anew_needs_new_samples(here: Polls) -> None:
    here.sampled(1)
    fetched(here)
    here.to(here.now + 20 * MS)
    here.sampled(2)
    here.to(here.now + 20 * MS)
    fetched(here, 2)
    here.sampled(3)
    here.to(here.now + S)
    assert here.busy(ON)
    here.sampled(4)
    here.sampled(5)
    here.to(here.now + 20 * MS)
    assert not here.busy(ON)


def test_hold_and_the_samples_pass_together(here: Polls) -> None:
    here.sampled(1)
    since = fetched(here)
    for at in (2, 3):
        here.to(here.now + SAMPLE)
        here.sampled(at)
    here.to(here.now + 10 * MS + 2 * POLL)
    assert here.enabled(OFF)
    assert here.now - since < 2 * SAMPLE + 20 * MS


def test_online_tenant_beside_another_that_works_is_idle_by_the_quiet_time() -> None:
    """Offline is off as long as the other works; and turns of online are not spent on one that is idle."""
    here = polls(quiet=2 * MS)
    here.tenant(OFF_TOO, BLIND, online=True)
    here.sampled(1)
    here.has(OFF_TOO, 9, 3)
    since = fetched(here)
    here.to(since + QUIET + 2 * POLL)
    here.sampling(here.now + S, used=True)
    assert (here.busy(ON), here.busy(OFF_TOO)) == (False, True)
    here.has(OFF_TOO, 9, 9)
    here.sampling(here.now + S, used=True)
    assert not here.enabled(OFF), "one of them may be inside a kernel"
    here.sampling(here.now + S, used=False)
    assert here.enabled(OFF)


@pytest.mark.parametrize(("error", "why"), [(errno.EOPNOTSUPP, "RM refuses"), (0, "RM samples no more")])
def test_without_samples_the_quiet_time_is_all_there_is(here: Polls, error: int, why: str) -> None:
    here.sampled(1, error=-error)
    since = fetched(here)
    here.to(since + S)
    assert here.busy(ON) is not bool(error), why
    here.to(since + 11 * S)
    assert not here.busy(ON)
    assert here.without(Without.UTILIZATION) == -(error or errno.ETIMEDOUT)
    assert not here.without(Without.UTILIZATION, SEEN)


def test_card_that_is_seen_asks_for_no_samples(here: Polls) -> None:
    here.sampled(1)
    executed(here)
    before = here.lib.poll_readings(BLIND)
    fetched(here, 2)
    here.to(here.now + S)
    assert not here.busy(ON)
    assert here.lib.poll_readings(BLIND) == before


def test_status_that_is_none_for_a_second_leaves_the_card_blind(here: Polls) -> None:
    """It would keep offline off for ever."""
    executed(here)
    here.engine(BLIND, -errno.EIO)
    since = here.now
    here.has(ON, 2, 2)
    here.to(since + S - POLL)
    assert here.busy(ON)
    assert not here.without(Without.ENGINE_STATUS)
    here.to(since + S + QUIET + HOLD + 10 * POLL)
    assert (here.busy(ON), here.enabled(OFF)) == (False, True)
    assert here.without(Without.ENGINE_STATUS) == -errno.EIO
    here.engine(BLIND, 1)
    here.has(OFF, 9, 9)
    here.to(here.now + S)
    assert here.busy(OFF), "words that were none once are no status, even if they look like one"
    here.release(BLIND)
    here.release(BLIND, released=False)
    here.has(ON, 3, 2)
    here.engine(BLIND, 1, ON)
    here.at(here.now + POLL)
    here.engine(BLIND, 1)
    here.has(ON, 3, 3)
    here.to(here.now + 10 * POLL)
    assert not here.busy(ON), "a card that is added anew is read anew"


def test_words_that_prove_nothing_are_told_until_they_prove_something(here: Polls) -> None:
    here.engine(BLIND, 1)
    here.to(2 * S)
    assert here.without(Without.ENGINE_STATUS) == -errno.ENOMSG
    here.engine(BLIND, 1, ON)
    here.at(here.now + POLL)
    assert not here.without(Without.ENGINE_STATUS)
