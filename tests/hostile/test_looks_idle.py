"""On each kind of chip: a tenant that writes into USERD what it likes neither looks idle while it works, nor
busy while it does nothing."""

import time
from collections.abc import Iterator

import pytest

from tests.hostile import siege as sieges
from tests.hostile.siege import Siege
from tests.support import chips
from tests.support.load import load, shares_become, time_of, working
from tests.support.programs import Programs
from tests.support.waiting import until

CAP_MIB = 1024
WATCHED_S = 1.0
SATURATE = ("saturate", "--kernel-us", "1000", "--queue", "16", "--seconds", "600")


@pytest.fixture(scope="module", params=chips.KINDS)
def besieged(request: pytest.FixtureRequest, private_host: None, built: Programs) -> Iterator[Siege]:
    with sieges.laid(built, request.param) as laid:
        yield laid


@pytest.fixture(params=["v100-16", "rtx-5090"])
def blind(request: pytest.FixtureRequest, private_host: None, built: Programs) -> Iterator[Siege]:
    with sieges.laid(built, request.param, ("engine-status=0",)) as laid:
        yield laid


@pytest.mark.parametrize("how", ["idle", "flip"])
def test_scribbling_online_tenant_that_works_keeps_offline_off(siege: Siege, how: str) -> None:
    keeps_offline_off(siege, how)


@pytest.mark.parametrize("how", ["idle", "flip"])
def test_scribbling_online_tenant_keeps_offline_off_where_engines_are_not_seen(
    blind: Siege, how: str
) -> None:
    """No word of its own is what says that it works."""
    keeps_offline_off(blind, how)


def keeps_offline_off(siege: Siege, how: str) -> None:
    with load(siege.mgpu, *SATURATE, qos="offline") as offline:
        working(offline)
        with siege.attempt("scribble", how, "20", cap_mib=CAP_MIB) as scribble:
            assert scribble.line() == "ready"
            until(lambda: bool(scribble.runs()), "it executes")
            time.sleep(0.3)
            before = time_of(siege.mgpu, offline.pid)
            time.sleep(WATCHED_S)
            assert time_of(siege.mgpu, offline.pid) == before, "offline ran beside online's kernels"


def test_online_tenant_that_seems_busy_and_executes_nothing_keeps_nobody_off(siege: Siege) -> None:
    with load(siege.mgpu, *SATURATE, qos="offline") as offline:
        working(offline)
        with siege.attempt("scribble", "busy", cap_mib=CAP_MIB) as scribble:
            assert scribble.line() == "ready"
            shares_become(siege.mgpu, [offline.pid], lambda got: got[0] > 80)


@pytest.mark.parametrize("how", ["idle", "flip"])
def test_scribbling_offline_tenant_is_off_beside_online_work(siege: Siege, how: str) -> None:
    with siege.attempt("scribble", how, "20", qos="offline", cap_mib=CAP_MIB) as scribble:
        assert scribble.line() == "ready"
        until(lambda: bool(scribble.runs()), "it runs while the card is its own")
        shape = ("--period-ms", "50", "--kernels", "1", "--kernel-us", "1000", "--seconds", "0.8")
        with load(siege.mgpu, "burst", *shape) as online:
            working(online)
            online.result()
        scribble.never_ran_suspended(at_least_ns=500 * 1_000_000)
