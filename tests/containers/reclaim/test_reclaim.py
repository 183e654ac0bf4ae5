"""Offline memory gives way to online and comes back with its data, on a simulated card that holds it."""

import json

from mgpu_cli.render import mib
from tests.support.arbiter import Arbiter
from tests.support.bundle import bundle
from tests.support.lasting import lasting_mgpu
from tests.support.lending import (
    CARD_MIB,
    LENDS,
    OFFLINE,
    holder,
    keeper,
    rounds,
    running,
    started,
    taker,
    turn,
)
from tests.support.programs import Programs, inside
from tests.support.scrape import scrape
from tests.support.waiting import until

TIMES = 20
LARGE_OFFLINE = OFFLINE | {"mgpu.dev/memory-mib": "3072"}


lasting, mgpu = lasting_mgpu("v100-16:1", node_config=LENDS)


def test_online_fills_its_cap_and_offline_comes_back_with_its_data(mgpu: Arbiter, built: Programs) -> None:
    with keeper(mgpu, built, "2") as offline, taker(mgpu, built) as online:
        before = rounds(offline)
        for _ in range(TIMES):
            turn(online)
            offline.until("evicted")
            [card] = mgpu.listing()["cards"]
            assert (card["evicted_bytes"] > 0, card["demanded_bytes"]) == (True, 0)
            turn(online)
            offline.until("running")
            after = rounds(offline)
            assert after > before
            before = after
    assert all(card.used_bytes <= 16160 << 20 for card in mgpu.account().cards)


def test_granted_lent_and_evicted_memory_is_shown(mgpu: Arbiter, built: Programs) -> None:
    with keeper(mgpu, built) as offline, taker(mgpu, built) as online:
        lent_mib = int(OFFLINE["mgpu.dev/memory-mib"])
        container = offline.bundle.container
        moves = scrape(mgpu.root).one("mgpu_memory_moves_total", what="evicted")
        held = offline.row["cards"][0]["used_bytes"]
        turn(online)
        offline.until("evicted")
        assert "bound, evicted" in mgpu.mgpu("ps")
        assert f"evicted, {mib(held)} MiB" in mgpu.mgpu("describe", container)
        [frame] = json.loads(mgpu.mgpu("top", "--once", "-o", "json"))["cards"]
        [listed] = json.loads(mgpu.mgpu("devices", "-o", "json"))
        for shown in (frame, listed):
            assert (shown["reclaimable_mib"], shown["evicted_bytes"]) == (lent_mib, held)
        assert listed["granted_mib"] == CARD_MIB, "what gives way is not counted as granted"
        assert {row["state"] for row in frame["containers"] if row["class"] == "offline"} == {"evicted"}
        assert f"{lent_mib} reclaimable, {mib(held)} evicted" in mgpu.mgpu("top", "--once")
        found = scrape(mgpu.root)
        for what, size in (("granted", CARD_MIB << 20), ("reclaimable", lent_mib << 20), ("evicted", held)):
            assert found.one(f"mgpu_card_memory_{what}_bytes") == size
        assert found.of("memory_evicted_bytes", container) == held
        assert found.one("mgpu_memory_moves_total", what="evicted") == moves + 1
        turn(online)
        offline.until("running")


def test_online_is_shown_as_free_what_gives_way_to_it(mgpu: Arbiter, built: Programs) -> None:
    """Programs ask what is free and take that: vLLM, XLA."""
    online = {"mgpu.dev/memory-mib": str(CARD_MIB - 1024)}
    with started(mgpu, built, LARGE_OFFLINE, inside("keeper"), "2048") as offline:
        assert offline.program.line() == "up"
        with built.bundle("capped", annotations=online) as made:
            [card] = json.loads(made.run(mgpu.runtime).out)
        assert card["total_bytes"] == CARD_MIB - 1024 << 20
        assert card["total_bytes"] - card["free_bytes"] < 512 << 20, "more than its context is not its own"
        assert (card["exact"], card["after"]) == (0, 0)
        offline.until("running")
        assert rounds(offline)


def test_container_that_has_no_gpu_is_not_evicted(mgpu: Arbiter) -> None:
    with bundle("sleep", "100") as made, running(mgpu, made):
        refused = mgpu.try_mgpu("evict", made.container)
        assert refused.status == 1
        assert refused.err == (
            f'mgpu: no container with a grant is called "{made.container}"; '
            "give its id, the first 4 characters of it or more, or its pod: see mgpu ps\n"
        )


def test_by_hand_it_is_evicted_and_stays_so_until_it_is_resumed(mgpu: Arbiter, built: Programs) -> None:
    with keeper(mgpu, built) as offline:
        before = rounds(offline)
        shown = mgpu.mgpu("evict", offline.bundle.container)
        assert "bound, evicted" in shown
        assert mgpu.used_bytes() == [0]
        assert "evicted, " in mgpu.mgpu("describe", offline.bundle.container)
        refused = mgpu.try_mgpu("evict", offline.bundle.container[:4] + "-no")
        assert refused.status == 1
        with taker(mgpu, built) as online:
            turn(online)
            refused = mgpu.try_mgpu("resume", offline.bundle.container)
            assert refused.status == 1
            assert "MiB on GPU 0, where" in refused.err
            assert refused.err.count("\n") == 1
        until(lambda: len(mgpu.containers()) == 1, "online is gone")
        assert "bound" in mgpu.mgpu("resume", offline.bundle.container)
        assert rounds(offline) > before
        refused = mgpu.try_mgpu("resume", offline.bundle.container)
        assert "is running, not evicted" in refused.err


def test_by_hand_any_container_is_evicted_and_what_gives_way_makes_room_for_it(
    mgpu: Arbiter, built: Programs
) -> None:
    fills = OFFLINE | {"mgpu.dev/memory-mib": str(CARD_MIB)}
    with taker(mgpu, built) as online:
        turn(online)
        held = mgpu.used_bytes()
        name = online.bundle.container
        assert "bound, evicted" in mgpu.mgpu("evict", name)
        assert f"evicted, {mib(held[0])} MiB, by hand" in mgpu.mgpu("describe", name)
        assert mgpu.used_bytes() == [0]
        with started(mgpu, built, fills, *holder()) as offline:
            assert offline.program.line() == "held 0"
            assert "bound" in mgpu.mgpu("resume", name)
            assert (online.reclaim, offline.reclaim) == ("running", "evicted")
            assert mgpu.used_bytes() == held
        turn(online)
