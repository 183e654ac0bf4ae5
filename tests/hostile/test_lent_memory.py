"""Attempts at memory that gives way: to have neighbours evicted for nothing, and to seem to be evicted."""

from tests.support.arbiter import Arbiter
from tests.support.lasting import lasting_mgpu
from tests.support.lending import (
    CARD_MIB,
    FILL_MIB,
    KEEPER,
    LENDS,
    LENT_MIB,
    OFFLINE,
    ONLINE,
    keeper,
    rounds,
    started,
)
from tests.support.programs import Programs, inside
from tests.support.rm_numbers import NV_ERR_NO_MEMORY
from tests.support.scrape import scrape
from tests.support.waiting import until

MIB = 1 << 20
ASKED_S = 4
THREADS = 16
# Of the program that outlives its maker; a context takes at least so much.
LEFT_MIB, CONTEXT_MIB = 96, 200


lasting, mgpu = lasting_mgpu("v100-16:1", node_config=LENDS + "evict_wait_ms = 2000\n")


def evictions(mgpu: Arbiter) -> float:
    return scrape(mgpu.root).one("mgpu_memory_moves_total", what="evicted")


def test_refusal_for_other_than_memory_evicts_no_container(mgpu: Arbiter, built: Programs) -> None:
    with keeper(mgpu, built), started(mgpu, built, ONLINE, inside("doorbells"), str(ASKED_S)) as online:
        before = evictions(mgpu)
        assert online.program.line() == f"refused {NV_ERR_NO_MEMORY:#x}"
        assert mgpu.listing()["cards"][0]["demanded_bytes"] == 0
        assert online.program.line() == "asked"
        assert evictions(mgpu) == before


def test_bound_of_mgpus_own_evicts_no_container(mgpu: Arbiter, built: Programs) -> None:
    with keeper(mgpu, built), started(mgpu, built, ONLINE, inside("many_groups"), "17", "clients") as online:
        before = evictions(mgpu)
        assert online.program.line() == f"made 16 status {NV_ERR_NO_MEMORY:#x}"
        assert evictions(mgpu) == before


def test_calls_together_demand_no_more_than_the_cap(mgpu: Arbiter, built: Programs) -> None:
    with keeper(mgpu, built) as offline:
        offline.call("pause")
        until(lambda: offline.row["paused"], "it is seen to be frozen")
        with started(mgpu, built, ONLINE, inside("demand"), str(FILL_MIB), str(THREADS)) as online:
            assert online.program.line() == "asking"
            until(lambda: mgpu.listing()["cards"][0]["demanded_bytes"] > 0, "they wait")
            for _ in range(20):
                assert mgpu.listing()["cards"][0]["demanded_bytes"] <= CARD_MIB * MIB
        offline.call("resume")


def test_memory_without_a_process_is_not_evicted(mgpu: Arbiter, built: Programs) -> None:
    """Its files keep memory whose maker is gone, beside a process that could be moved."""
    words = f"sleep 1000 | {inside('outlive')} >/dev/null & exec {' '.join(KEEPER)}"
    with started(mgpu, built, OFFLINE, "/bin/sh", "-c", words) as offline:
        assert offline.program.line() == "up"
        until(
            lambda: offline.row["cards"][0]["used_bytes"] > (LEFT_MIB + LENT_MIB + CONTEXT_MIB) * MIB,
            "the maker is gone",
        )
        refused = mgpu.try_mgpu("evict", offline.bundle.container)
        assert refused.status == 1
        assert f"{LEFT_MIB} MiB stayed on its GPUs" in refused.err
        assert offline.reclaim == "running"
        assert rounds(offline) > 0
