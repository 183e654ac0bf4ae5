"""Attempts on the way that a call takes: other ABIs, filters on top of ours, tracers, ends and signals in
between.
"""

import pytest

from tests.hostile.siege import CAP_MIB, MIB, Siege
from tests.support.rm_numbers import NV_ERR_NO_MEMORY
from tests.support.waiting import until

EPERM, EFAULT, EBUSY, ENOSYS, NO_MEMORY = 1, 14, 16, 38, NV_ERR_NO_MEMORY


@pytest.mark.parametrize("road", ["io_uring", "i386", "x32"])
def test_roads_that_are_no_ioctl_of_a_64_bit_program(siege: Siege, road: str) -> None:
    with siege.attempt("foreign_calls", road) as calls:
        first, second = calls.numbers()
        # A kernel without the ABI says so itself.
        assert first in (EPERM, ENOSYS)
        assert second != 0
        assert calls.used_bytes == 0 == siege.counts_agree()


def test_filters_and_a_listener_of_the_tenants_own(siege: Siege) -> None:
    with siege.attempt("nested") as nested:
        listener, held, status = nested.numbers()
        assert (listener, held, status) == (EBUSY, CAP_MIB, NO_MEMORY)
        assert nested.used_bytes == CAP_MIB * MIB == siege.counts_agree()


def test_tracer_that_changes_calls_and_stops_them(siege: Siege) -> None:
    with siege.attempt("puppet", "1") as puppet:
        stops, changed = puppet.numbers()
        assert stops > 100
        assert changed > 40
        assert 0 < puppet.used_bytes == siege.counts_agree()
        puppet.under_the_cap()
        siege.neighbour_is_well()


def test_processes_that_end_in_the_middle_of_calls(siege: Siege) -> None:
    with siege.attempt("exit_inside", "1") as ends:
        [processes] = ends.numbers()
        assert processes > 20
        until(lambda: ends.used_bytes == 0, "what they had ended with them")
        assert siege.counts_agree() == 0
        ends.under_the_cap()


def test_signals_as_fast_as_they_can_be_sent(siege: Siege) -> None:
    """Restarted or given up, a call that was carried out is one that was counted."""
    with siege.attempt("signal_storm", "1") as storm:
        signals, _ = storm.numbers()
        assert signals > 500
        assert storm.used_bytes == 0 == siege.counts_agree()
        storm.under_the_cap()
        siege.neighbour_is_well()


def test_parameters_in_a_page_that_never_arrives(siege: Siege) -> None:
    """Only the attacker's own listener waits for it, which ends with the attacker."""
    with siege.attempt("stalled_memory") as stalled:
        assert stalled.line() in ("waits", f"answered {EFAULT}")
        siege.neighbour_is_well()
        assert stalled.used_bytes == 0 == siege.counts_agree()


def test_utilisation_that_is_read_into_what_is_not_there(siege: Siege) -> None:
    with siege.attempt("samples") as samples:
        # What was not as it must be comes before.
        said = samples.line()
        good, tried, beside = (int(word.rstrip(",")) for word in said.split() if word.rstrip(",").isdigit())
        assert (good, beside) == (tried, 0), said
        assert tried > 300
        assert samples.used_bytes == 0 == siege.counts_agree()
        siege.neighbour_is_well()
