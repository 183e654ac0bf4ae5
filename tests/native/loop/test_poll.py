"""When online is seen to have no work, in virtual time: by its engines, else by what it has fetched."""

import pytest

from tests.native.polls import (
    BLIND,
    GANG,
    HOLD,
    IDLE_POLLS,
    MS,
    OFF,
    OFF_TOO,
    ON,
    POLL,
    QUIET,
    QUIET_BY_PUT,
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


def test_online_is_idle_after_the_quiet_time_and_offline_back_after_the_hold_to_the_ns(here: Polls) -> None:
    since = fetched(here)
    here.to(since + QUIET)
    here.at(since + QUIET - 1)
    assert here.busy(ON)
    here.at(since + QUIET)
    assert not here.busy(ON)
    here.to(since + QUIET + HOLD)
    here.at(since + QUIET + HOLD - 1)
    assert not here.enabled(OFF)
    here.at(since + QUIET + HOLD)
    assert here.enabled(OFF)


def test_hold_counts_from_the_end_of_the_quiet_time_however_late_the_poll(here: Polls) -> None:
    since = fetched(here)
    for late in range(1, IDLE_POLLS):
        here.at(since + QUIET + late * 10 * MS)
    assert not here.busy(ON)
    here.at(since + QUIET + HOLD)
    assert here.enabled(OFF)


def test_quiet_time_takes_three_polls(here: Polls) -> None:
    since = fetched(here)
    here.at(since + 10 * QUIET)
    assert here.busy(ON)
    here.at(since + 10 * QUIET + 1)
    assert not here.busy(ON)


def test_three_polls_suffice_without_a_quiet_time() -> None:
    here = polls(quiet=0)
    since = fetched(here)
    here.at(since + 1)
    assert here.busy(ON)
    here.at(since + 2)
    assert not here.busy(ON)
    here.at(since + HOLD - 1)
    assert not here.enabled(OFF)
    here.at(since + HOLD)
    assert here.enabled(OFF)


@pytest.mark.parametrize("within", [POLL, QUIET - 1])
def test_burst_within_the_quiet_time_restarts_the_quiet_time(here: Polls, within: int) -> None:
    """Fetched before a poll: GP_PUT has moved."""
    since = fetched(here)
    here.to(since + within)
    here.has(ON, 2, 2)
    here.at(since + within)
    since = fetched(here, 2)
    here.to(since + QUIET)
    here.at(since + QUIET - 1)
    assert here.busy(ON)
    here.at(since + QUIET)
    assert not here.busy(ON)


def test_burst_after_the_quiet_time_suspends_offline_at_the_next_poll(here: Polls) -> None:
    since = fetched(here)
    here.to(since + QUIET + HOLD + POLL)
    here.at(since + QUIET + HOLD + POLL)
    assert here.enabled(OFF)
    here.has(ON, 2, 2)
    here.at(here.now + POLL)
    assert here.busy(ON)
    assert not here.enabled(OFF)


def test_unfetched_work_counts_until_it_is_fetched(here: Polls) -> None:
    here.to(3 * S)
    assert here.busy(ON)
    assert not here.enabled(OFF)
    # Some progress, and then none for longer than the quiet time.
    here.has(ON, 9, 8)
    here.to(4 * S)
    assert here.busy(ON)
    since = fetched(here, 9)
    here.to(since + QUIET)
    here.at(since + QUIET)
    assert not here.busy(ON)


def test_offline_is_never_idle_by_fetch(here: Polls) -> None:
    since = fetched(here)
    here.has(OFF, 9, 9)
    here.to(since + QUIET + HOLD + 2 * S)
    assert here.enabled(OFF)
    assert here.busy(OFF)


def test_quiet_time_is_per_card(here: Polls) -> None:
    since = fetched(here)
    here.to(since + QUIET + POLL)
    here.at(since + QUIET + POLL)
    assert not here.busy(ON), "one online container with work at a time is on a card"
    here.engine(SEEN, 1)
    here.tenant(OFF_TOO, SEEN)
    here.tenant(GANG, BLIND, SEEN, online=True)
    here.has(OFF_TOO, 9, 3, SEEN)
    for card in (BLIND, SEEN):
        here.has(GANG, 1, 0, card)
    here.at(here.now + POLL)
    assert (here.busy(GANG, BLIND), here.busy(GANG, SEEN)) == (True, True)
    assert not here.enabled(OFF_TOO)
    # All is fetched. On one of them it is seen to execute.
    here.engine(SEEN, 1, GANG)
    for card in (BLIND, SEEN):
        here.has(GANG, 1, 1, card)
    here.at(here.now + POLL)
    since = here.now
    here.to(since + QUIET)
    here.at(since + QUIET - 1)
    assert (here.busy(GANG, BLIND), here.busy(GANG, SEEN)) == (True, True)
    here.at(since + QUIET)
    assert (here.busy(GANG, BLIND), here.busy(GANG, SEEN)) == (False, True)
    here.to(since + QUIET + HOLD)
    here.at(since + QUIET + HOLD)
    assert (here.enabled(OFF), here.enabled(OFF_TOO)) == (True, False)
    # Its kernel ends: three polls, and the hold.
    here.engine(SEEN, 1)
    ended = here.now + POLL
    for n in range(IDLE_POLLS):
        assert here.busy(GANG, SEEN)
        here.at(ended + n)
    assert not here.busy(GANG, SEEN)
    here.at(ended + HOLD - 1)
    assert not here.enabled(OFF_TOO)
    here.at(ended + HOLD)
    assert here.enabled(OFF_TOO)


def test_engines_that_cannot_be_read_now_tell_nothing(here: Polls) -> None:
    """As while the card's status changes: not to be taken for a card that cannot be seen."""
    here.engine(BLIND, 1, ON)
    since = fetched(here)
    here.engine(BLIND, -1)
    here.to(since + S)
    assert here.busy(ON)
    here.engine(BLIND, 1)
    for _ in range(IDLE_POLLS):
        assert here.busy(ON)
        here.at(here.now + POLL)
    assert not here.busy(ON)


def test_released_card_is_not_polled_and_nobody_has_work_there(here: Polls) -> None:
    """Offline of two cards is off both while online works on one of them, and that one is lost."""
    here.tenant(GANG, BLIND, SEEN)
    here.has(GANG, 9, 3, card=SEEN)
    here.at(here.now + POLL)
    assert here.busy(ON)
    assert not here.enabled(GANG)
    here.release(BLIND)
    released, before = here.now, here.polls
    here.has(ON, 2, 0)
    here.to(released + HOLD)
    assert not here.busy(ON)
    assert here.polls - before == (here.now - released) // POLL, "the other card alone"
    here.at(released + HOLD)
    assert here.enabled(GANG)
    here.release(BLIND, released=False)
    here.at(here.now + POLL)
    assert here.busy(ON)


def test_words_that_never_showed_a_tenant_s_work_are_no_status(here: Polls) -> None:
    """As a register that always reads as 0, where another chip has its status."""
    here.engine(BLIND, 1)
    since = fetched(here)
    here.to(since + QUIET)
    here.at(since + QUIET - 1)
    assert here.busy(ON)
    here.at(since + QUIET)
    assert not here.busy(ON)
    here.has(OFF, 9, 9)
    here.to(since + QUIET + HOLD + S)
    assert here.busy(OFF), "and offline is not suspended inside its kernel"


def test_another_s_work_does_not_prove_them(here: Polls) -> None:
    here.engine(BLIND, 1, 77)
    here.at(here.now + POLL)
    here.engine(BLIND, 1)
    since = fetched(here)
    here.at(since + IDLE_POLLS)
    here.at(since + IDLE_POLLS + 1)
    assert here.busy(ON)


def test_card_that_was_released_proves_itself_again(here: Polls) -> None:
    executed(here)
    here.release(BLIND)
    here.release(BLIND, released=False)
    here.has(ON, 2, 0)
    here.at(here.now + POLL)
    since = fetched(here, 2)
    here.to(since + QUIET)
    assert here.busy(ON)


def test_work_that_says_no_fetch_has_ended_when_no_engine_executes_it(here: Polls) -> None:
    """As on Blackwell, where the word that was GP_GET stays 0."""
    here.by_put(ON)
    since = executed(here)
    assert here.busy(ON)
    for late in (1, 2):
        here.at(since + late)
    assert not here.busy(ON)
    here.at(since + HOLD)
    assert here.enabled(OFF)


def test_work_that_says_no_fetch_counts_while_it_executes_or_is_submitted(here: Polls) -> None:
    here.by_put(ON)
    executed(here)
    for put in range(2, 9):
        here.has(ON, put, 0)
        here.at(here.now + POLL)
        assert here.busy(ON)
    here.engine(BLIND, 1, ON)
    here.to(here.now + S)
    assert here.busy(ON)
    assert not here.enabled(OFF)


def test_what_is_written_for_gp_get_there_means_nothing(here: Polls) -> None:
    """It is the tenant's to write: with it, it does not look busy."""
    here.by_put(ON)
    since = executed(here)
    for get in (7, 8, 9):
        here.has(ON, 1, get)
        here.at(since + get)
    assert not here.busy(ON)


def test_quiet_time_is_longer_without_a_fetch(here: Polls) -> None:
    here.by_put(ON)
    here.at(here.now + POLL)
    since = here.now
    here.to(since + QUIET_BY_PUT)
    here.at(since + QUIET_BY_PUT - 1)
    assert here.busy(ON)
    here.at(since + QUIET_BY_PUT)
    assert not here.busy(ON)


CLAIM = 2000 * POLL


@pytest.mark.parametrize("by_put", [False, True], ids=["fetches", "by-put"])
def test_words_that_no_engine_bears_out_are_believed_for_a_second(here: Polls, by_put: bool) -> None:
    """With pauses or without: what is written there costs nothing."""
    if by_put:
        here.by_put(ON)
    since = executed(here)
    put = 2
    while here.now < since + CLAIM - 10 * POLL:
        put += 1
        here.has(ON, put, put if by_put else 0)
        here.at(here.now + POLL)
        assert here.busy(ON)
    while here.now < since + CLAIM + 10 * POLL:
        put += 1
        here.has(ON, put, put if by_put else 0)
        here.at(here.now + POLL)
    assert not here.busy(ON)
    for _ in range(5):
        here.has(ON, put, put)
        here.at(here.now + POLL)
        put += 1
        here.has(ON, put, 0)
        here.at(here.now + POLL)
        assert not here.busy(ON)
    here.to(here.now + HOLD)
    here.at(here.now + POLL)
    assert here.enabled(OFF)
    here.engine(BLIND, 1, ON)
    here.at(here.now + POLL)
    assert here.busy(ON), "what executes is believed"
    assert not here.enabled(OFF)


def test_short_work_that_is_seen_to_execute_now_and_then_is_believed_for_ever(here: Polls) -> None:
    executed(here)
    for put in range(2, 9):
        here.has(ON, put, put - 1)
        here.to(here.now + CLAIM - 10 * POLL)
        assert here.busy(ON)
        here.engine(BLIND, 1, ON)
        here.at(here.now + POLL)
        here.engine(BLIND, 1)


def test_work_that_waits_behind_another_s_is_no_claim(here: Polls) -> None:
    executed(here)
    here.has(ON, 3, 2)
    here.engine(BLIND, 1, OFF)
    here.to(here.now + 3 * CLAIM)
    assert here.busy(ON)


def test_difference_between_names_and_numbers_is_learned(here: Polls) -> None:
    """As where firmware has a group of its own, before those that RM tells."""
    here.unnumbered()
    here.engine(BLIND, 1, ON + 1)
    for _ in range(3):
        here.has(ON, 1, 1)
        here.at(here.now + POLL)
    here.engine(BLIND, 1, 0)
    here.to(here.now + (IDLE_POLLS + 2) * POLL)
    assert not here.busy(ON), "what its engine names tells when it is idle"


def test_name_that_two_numbers_explain_teaches_nothing(here: Polls) -> None:
    """A tenant with neighbouring groups: it executes the one, and the other has the number that is named."""
    here.group(ON, ON + 1)
    here.unnumbered()
    here.engine(BLIND, 1, ON + 1)
    for _ in range(50):
        here.has(ON, 1, 1)
        here.at(here.now + POLL)
    here.engine(BLIND, 1, 0)
    here.to(here.now + (IDLE_POLLS + 2) * POLL)
    assert here.busy(ON), "the card is blind"
