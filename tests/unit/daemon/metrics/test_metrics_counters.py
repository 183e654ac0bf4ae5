"""The engine's counters by themselves: which bucket, which reason, and who has been at one call for how
long."""

import ctypes
import errno
import subprocess
from ctypes import Structure, byref, c_bool, c_int, c_uint32, c_uint64

import pytest

from native_sched.daemon.engine_abi import LATENCY_BUCKETS, MAX_CARDS, Refused, Stats, Why
from tests.support.places import REPOSITORY
from tests.unit.metrics_support import BOUNDS_NS

NATIVE = REPOSITORY / "native_sched"
FLAGS = ("-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", f"-I{REPOSITORY}")
US = 1000


class LoopStats(Structure):
    """struct loop_stats."""

    _fields_ = [
        *((name, c_uint64) for name in ("turns", "looks", "suspend_failures", "resume_failures")),
        ("preemption", c_uint64 * LATENCY_BUCKETS),
        ("preemption_sum_ns", c_uint64),
        ("decided_ns", c_uint64),
    ]


class TenantStats(Structure):
    """struct tenant_stats."""

    _fields_ = [
        ("refused", c_uint64 * len(Refused)),
        ("audit_mismatches", c_uint64 * MAX_CARDS),
        ("parked", c_uint64 * LATENCY_BUCKETS),
        ("parked_ns", c_uint64),
    ]


class ListenerStats(Structure):
    """struct listener_stats."""

    _fields_ = [("steps", c_uint64), ("seen_steps", c_uint64), ("seen_ns", c_uint64)]


@pytest.fixture(scope="module")
def counters(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = tmp_path_factory.mktemp("counters") / "libcounters.so"
    sources = [NATIVE / "nvidia/account" / "stats.c", NATIVE / "loop" / "stats.c"]
    subprocess.run(["gcc", *FLAGS, "-o", library, *sources], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.stats_serving_since_ns.restype = c_uint64
    loaded.stats_calls.restype = c_uint64
    return loaded


def outcome(
    counters: ctypes.CDLL, stats: LoopStats, took_ns: int, *, run: bool, why: Why, error: int
) -> None:
    stats.decided_ns = 10**12
    at = c_uint64(10**12 + took_ns)
    counters.loop_stats_outcome(byref(stats), c_bool(run), c_uint32(why), c_int(error), at)


def test_bounds_are_those_that_tests_use(counters: ctypes.CDLL) -> None:
    bounds = (c_uint64 * (LATENCY_BUCKETS - 1)).in_dll(counters, "mgpu_latency_bounds_ns")
    assert tuple(bounds) == BOUNDS_NS
    assert (BOUNDS_NS[0], BOUNDS_NS[-1]) == (50 * US, 10_000 * US)


def test_bound_is_inside_its_bucket_and_what_is_beyond_all_is_in_the_last(counters: ctypes.CDLL) -> None:
    stats, read = LoopStats(), Stats()
    took = [each for bound in BOUNDS_NS for each in (bound, bound + 1)]
    for each in took:
        outcome(counters, stats, each, run=False, why=Why.PREEMPTED, error=0)
    counters.loop_stats_read(byref(stats), byref(read))
    # Each bucket but the first and the last has the bound before it plus 1 ns, and its own.
    assert list(read.preemption) == [1, *[2] * 8, 1]
    assert read.preemption_sum_ns == sum(took)


def test_time_of_a_parked_call_is_in_its_bucket(counters: ctypes.CDLL) -> None:
    bounds = tuple((c_uint64 * (LATENCY_BUCKETS - 1)).in_dll(counters, "mgpu_parked_bounds_ns"))
    assert sorted(bounds) == list(bounds)
    stats = TenantStats()
    for took in (0, bounds[0], bounds[0] + 1, bounds[-1] + 1):
        counters.stats_parked(byref(stats), c_uint64(took))
    assert list(stats.parked) == [2, 1, *[0] * 7, 1]
    assert stats.parked_ns == 2 * bounds[0] + bounds[-1] + 2


def test_failed_preemptions_are_not_timed(counters: ctypes.CDLL) -> None:
    stats = LoopStats()
    outcome(counters, stats, 5, run=False, why=Why.SLICE, error=0)
    outcome(counters, stats, 5, run=True, why=Why.PREEMPTED, error=0)
    outcome(counters, stats, 5, run=False, why=Why.PREEMPTED, error=-errno.EIO)
    outcome(counters, stats, 5, run=True, why=Why.NONE, error=-errno.EIO)
    outcome(counters, stats, 5, run=True, why=Why.NONE, error=-errno.EIO)
    assert sum(stats.preemption) == stats.preemption_sum_ns == 0
    assert (stats.suspend_failures, stats.resume_failures) == (1, 2)


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (0x51, Refused.MEMORY),
        (0x26, Refused.CARD),
        (0x22, Refused.CLASS),
        (0x23, Refused.HANDLE),
        (0x36, Refused.HANDLE),
        (0x33, Refused.HANDLE),
        (0x1B, Refused.SCHEDULING),
        (0x56, Refused.UNSUPPORTED),
        (0x1F, Refused.FORM),
    ],
)
def test_reasons_by_rm_status(counters: ctypes.CDLL, status: int, reason: Refused) -> None:
    counts = (c_uint64 * len(Refused))()
    counters.stats_refused(counts, c_uint32(status))
    assert list(counts) == [int(each == reason) for each in Refused]


def test_refusals_to_shares_have_a_reason_of_their_own(counters: ctypes.CDLL) -> None:
    counts = (c_uint64 * len(Refused))()
    counters.stats_refused_to_share(counts)
    assert list(counts) == [int(each == Refused.SHARE) for each in Refused]


def test_reasons_by_errno(counters: ctypes.CDLL) -> None:
    counts = (c_uint64 * len(Refused))()
    for number in (errno.EPERM, errno.ENOTTY, errno.EINVAL):
        counters.stats_failed(counts, c_int(-number))
    assert (counts[Refused.PERMISSION], counts[Refused.UNSUPPORTED], sum(counts)) == (1, 1, 2)


def test_time_at_a_call_counts_from_the_first_poll_that_saw_it(counters: ctypes.CDLL) -> None:
    stats = ListenerStats()

    def since(now_ns: int) -> int:
        return int(counters.stats_serving_since_ns(byref(stats), c_uint64(now_ns)))

    assert since(100) == 0
    stats.steps = 1
    assert [since(200), since(300)] == [200, 200]
    stats.steps = 3  # that one was answered, and it is at another
    assert [since(400), since(500)] == [400, 400]
    stats.steps = 4
    assert since(600) == 0
    assert counters.stats_calls(byref(stats)) == 2


def test_reasons_are_named_in_the_page() -> None:
    page = (REPOSITORY / "docs" / "metrics.md").read_text().partition("reason of a call's refusal")[2]
    table = page.partition("\n\n")[0]
    assert all(f"`{reason.name.lower()}`" in table for reason in Refused)
