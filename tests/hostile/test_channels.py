"""Attempts on what the scheduler sees of a tenant and does to it: channels are memory that the tenant
writes."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.hostile.siege import HOLD_MS, Attempt, Siege
from tests.support.load import load, shares_become, working
from tests.support.rm_numbers import NV_ERR_INVALID_OBJECT_PARENT, NV_ERR_NO_MEMORY, NV_ERR_STATE_IN_USE
from tests.support.waiting import until

MS = 1_000_000
# A context on the simulated H200 is 240 MiB.
CONTEXT_MIB = 240
GROUPS_MAX, CHANNELS_MAX, SUSPEND_CALLS_MAX, RUNLIST_IDS = 256, 1024, 16, 2048
NO_MEMORY, IN_USE, EPERM = NV_ERR_NO_MEMORY, NV_ERR_STATE_IN_USE, 1
INVALID_OBJECT_PARENT = NV_ERR_INVALID_OBJECT_PARENT
ONLINE = ("burst", "--period-ms", "50", "--kernels", "1", "--kernel-us", "1000")


@contextmanager
def online_for(siege: Siege, seconds: float) -> Iterator[None]:
    """An online container works so often that offline work stays off all the while."""
    with load(siege.mgpu, *ONLINE, "--seconds", str(seconds)) as online:
        working(online)
        yield
        online.result()


def on_the_card(attempt: Attempt) -> None:
    until(lambda: bool(attempt.runs()), "it runs while the card is its own")


@pytest.mark.parametrize("how", ["idle", "flip"])
def test_scribbling_offline_tenant_is_off_beside_online_work(siege: Siege, how: str) -> None:
    with siege.attempt("scribble", how, "20", qos="offline", cap_mib=4 * CONTEXT_MIB) as scribble:
        assert scribble.line() == "ready"
        on_the_card(scribble)
        with online_for(siege, 0.8):
            pass
        scribble.never_ran_suspended(at_least_ns=500 * MS)


def test_offline_tenant_that_seems_busy_for_ever_wastes_its_own_share(siege: Siege) -> None:
    with (
        siege.attempt("scribble", "busy", qos="offline", cap_mib=4 * CONTEXT_MIB) as scribble,
        load(
            siege.mgpu,
            *("saturate", "--kernel-us", "1000", "--queue", "64", "--seconds", "600"),
            qos="offline",
        ) as honest,
    ):
        assert scribble.line() == "ready"
        working(honest)
        shares_become(siege.mgpu, [honest.pid], lambda got: got[0] > 35)
        honest.stop()


def test_userd_unmapped_while_it_is_polled(siege: Siege) -> None:
    with siege.attempt("truncate", qos="offline", cap_mib=2 * CONTEXT_MIB) as truncate:
        assert truncate.numbers() == [EPERM, EPERM, EPERM, EPERM]
        on_the_card(truncate)
        truncate.running.tell()
        assert truncate.line() == "unmapped"
        with online_for(siege, 0.8):
            pass
        truncate.never_ran_suspended(at_least_ns=500 * MS)


def test_groups_are_limited(siege: Siege) -> None:
    cap_mib = (GROUPS_MAX + 40) * CONTEXT_MIB
    with siege.attempt("many_groups", "400", "groups", qos="offline", cap_mib=cap_mib) as many:
        assert many.numbers() == [GROUPS_MAX, NO_MEMORY]
        assert siege.counts_agree() == many.used_bytes == GROUPS_MAX * CONTEXT_MIB << 20
        siege.neighbour_is_well()
        with online_for(siege, 0.8):
            siege.neighbour_is_well()
        many.never_ran_suspended(at_least_ns=300 * MS)


def test_channels_are_limited(siege: Siege) -> None:
    with siege.attempt("many_groups", "2000", "channels", cap_mib=30 * CONTEXT_MIB) as many:
        made, status = many.numbers()
        assert status != 0
        assert made <= CHANNELS_MAX
        assert siege.counts_agree() == many.used_bytes
        siege.neighbour_is_well()


def test_two_tenants_leave_channels_for_a_third(siege: Siege) -> None:
    """A runlist has numbers for 2048 channels, and all tenants of the card share them."""
    greedy = ("many_groups", "2000", "channels")
    with siege.attempt(*greedy, cap_mib=20 * CONTEXT_MIB) as first:
        most = first.numbers()
        with siege.attempt(*greedy, cap_mib=20 * CONTEXT_MIB) as second:
            rest = second.numbers()
            with siege.attempt("many_groups", "200", "channels", cap_mib=20 * CONTEXT_MIB) as third:
                assert third.numbers() == [200, 0]
                siege.neighbour_is_well()
    assert (most[1], rest[1]) == (NO_MEMORY, NO_MEMORY)
    assert RUNLIST_IDS // 3 < most[0] <= RUNLIST_IDS // 2
    assert RUNLIST_IDS // 5 < rest[0] <= RUNLIST_IDS // 3


def test_clients_are_limited_to_those_suspended_in_time(siege: Siege) -> None:
    cap_mib = (SUSPEND_CALLS_MAX + 4) * CONTEXT_MIB
    with siege.attempt("many_groups", "40", "clients", qos="offline", cap_mib=cap_mib) as many:
        assert many.numbers() == [SUSPEND_CALLS_MAX, NO_MEMORY]
        assert siege.counts_agree() == many.used_bytes
        on_the_card(many)
        with online_for(siege, 0.8):
            siege.neighbour_is_well()
        many.never_ran_suspended(at_least_ns=300 * MS)


def test_groups_that_cannot_be_suspended_together(siege: Siege) -> None:
    cap_mib = (SUSPEND_CALLS_MAX + 4) * CONTEXT_MIB
    with siege.attempt("bare_groups", qos="offline", cap_mib=cap_mib) as bare:
        assert bare.numbers() == [0, INVALID_OBJECT_PARENT, IN_USE]
        on_the_card(bare)
        with online_for(siege, 0.8):
            pass
        bare.never_ran_suspended(at_least_ns=300 * MS)


def suspend_ms(attempt: Attempt) -> list[float]:
    """How long each of its suspends took, from the decision to the last group's being off."""
    turns = attempt.turns()
    return [
        (after[0] - before[0]) / MS
        for before, after in itertools.pairwise(turns)
        if (before[1], after[1]) == ("suspend", "suspended")
    ]


@pytest.mark.parametrize("groups", [1, 64])
def test_suspend_takes_as_long_as_there_are_groups(
    siege: Siege, groups: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The scheduler's thread is one for all cards: what a tenant can make it wait is bounded by what it may
    have.
    """
    cap_mib = (groups + 1) * CONTEXT_MIB
    with siege.attempt("many_groups", str(groups), "groups", qos="offline", cap_mib=cap_mib) as many:
        many.line()
        on_the_card(many)
        with load(
            siege.mgpu,
            *("burst", "--period-ms", str(HOLD_MS + 300), "--kernels", "1", "--kernel-us", "1000"),
            *("--seconds", "1.2"),
        ) as online:
            working(online)
            online.result()
        took = sorted(suspend_ms(many))
        assert took
        with capsys.disabled():
            print(f" {groups} groups: {took[len(took) // 2]:.2f} ms, at most {took[-1]:.2f} ms", end="")
        assert took[len(took) // 2] < 5 + groups


def test_work_made_while_suspended_waits(siege: Siege) -> None:
    with siege.attempt("newcomer", "4", qos="offline", cap_mib=8 * CONTEXT_MIB) as newcomer:
        assert newcomer.line() == "ready"
        on_the_card(newcomer)
        with online_for(siege, 0.8):
            until(lambda: newcomer.turns()[-1][1] == "suspended", "it is off")
            newcomer.running.tell()
            assert newcomer.line() == "made 4"
            assert newcomer.turns()[-1][1] == "suspended"
        newcomer.never_ran_suspended(at_least_ns=500 * MS)
        new = [
            group
            for group in siege.mgpu.account().cards[0].engines[0].groups
            if group.tgid == newcomer.row["pid"] and group.group >= 0x1000
        ]
        assert len(new) == 4
        until(
            lambda: any(span.tsg in {group.tsg for group in new} for span in newcomer.runs()),
            "the new ones run",
        )


def test_processes_that_end_while_they_are_suspended_and_resumed(siege: Siege) -> None:
    seconds = 2
    with siege.attempt("self_kill", str(seconds), qos="offline", cap_mib=12 * CONTEXT_MIB) as short_lived:
        assert short_lived.line() == "ready"
        with load(
            siege.mgpu,
            *("burst", "--period-ms", str(HOLD_MS + 40), "--kernels", "1", "--kernel-us", "500"),
            *("--seconds", str(seconds)),
        ) as online:
            online.result()
        [processes] = short_lived.numbers()
        assert processes > 20
        until(lambda: short_lived.used_bytes == 0, "what they had ended with them")
        assert len(short_lived.suspended()) > 2
        short_lived.under_the_cap()
