"""The ways of docs/architecture.md, walked: through how many files each leads, and how often the file that is
entered most. `python -m pytest tests/native/boundary/rm/test_walks.py -s` prints them."""

import asyncio
import ctypes
import functools
import re
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster.admission import review
from cluster.admission.names import Settings
from native_sched.daemon.node.config import NodeConfig
from tests.cluster import admission_support as admission
from tests.cluster import api_server
from tests.cluster.extender_support import NODES, PODS, extender, node, pod
from tests.native import engine_parts, nvidia_mediated
from tests.native.nvidia_mediated import World, world
from tests.native.retained_steps import working_group
from tests.native.rm_params import MEMORY, MIB, memory
from tests.support.places import REPOSITORY
from tests.support.waiting import until
from tests.support.walks import Walk, of_steps, walked
from tests.unit import arbiter_support, prepare_support, reclaimer_support

PAGE = (REPOSITORY / "docs" / "architecture.md").read_text()
BESIDE = 3
WALKER = Path(__file__).with_name("walk.c")


@functools.cache
def walking() -> str:
    """The engine over the card, which notes functions."""
    beside = [*nvidia_mediated.on_card(), WALKER]
    wrapped = ("parked_enter", "loop_poll", "control_of_client")
    flags = ("-finstrument-functions",)
    return engine_parts.library("libwalking.so", *beside, without="host.c", wrapped=wrapped, flags=flags)


def steps(here: World, name: str) -> list[int]:
    count = ctypes.c_uint32()
    function = here.lib[name]
    function.restype = ctypes.POINTER(ctypes.c_uint32)
    found = function(ctypes.byref(count))
    return list(found[: count.value])


def call(folder: Path, _patch: pytest.MonkeyPatch) -> Walk:
    with world(folder) as here:
        tenant, client = here.tenant_client()
        assert tenant.alloc(client, 0xD0, 0xE0, MEMORY, memory(MIB)).u32(0x28) == 0
        return of_steps(walking(), steps(here, "walked_call"))


def suspension(folder: Path, _patch: pytest.MonkeyPatch) -> Walk:
    with world(folder) as here:
        offline = here.tenant(offline=True)
        working_group(offline, offline.client())
        until(lambda: bool(here.engine.sched(offline.id).enabled), "it runs alone")
        online = here.tenant()
        working_group(online, online.client())
        until(lambda: not here.engine.sched(offline.id).enabled, "it is suspended")
        until(lambda: bool(steps(here, "walked_turn")), "the turn is over")
        return of_steps(walking(), steps(here, "walked_turn"))


def container(_folder: Path, _patch: pytest.MonkeyPatch) -> Walk:
    made = arbiter_support.World(NodeConfig())
    try:
        text = prepare_support.as_text(annotations=prepare_support.ASKING)
        prepare_support.talk(made, prepare_support.as_text())
        with walked() as walk:
            assert prepare_support.talk(made, text)[0]["action"] == "write"
        [grant] = made.grants
        made.life.release(grant)
    finally:
        made.close()
    return walk


def eviction(_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Walk:
    with contextmanager(reclaimer_support.made)(monkeypatch) as here:
        grant = here.container()
        with walked() as walk:
            here.engine.demands.add(0)
            here.runs(lambda: str(grant.reclaim.state) == "evicted")
            here.engine.demands.clear()
            here.runs(lambda: str(grant.reclaim.state) == "running")
    return walk


def pod_of_a_cluster(folder: Path, _patch: pytest.MonkeyPatch) -> Walk:
    asking = next(case for case in admission.cases() if case.name.startswith("annotations without limits"))
    body = admission.request(asking.manifest, None)
    with walked() as walk:
        review.mutate(body, Settings())
        review.validate(body, Settings())

    async def placed(server: api_server.ApiServer) -> Walk:
        server.put(NODES, node("a", 16384))
        async with extender(server, folder) as asked:
            one = server.put(PODS, pod("one", 8192))
            with walked() as walk:
                assert await asked.schedule(one, "a") == "a"
            return walk

    with api_server.running() as server:
        return walk + asyncio.run(placed(server))


WAYS: dict[str, Callable[[Path, pytest.MonkeyPatch], Walk]] = {
    "an annotation becomes a container's spec": container,
    "an ioctl that allocates memory": call,
    "online work suspends offline work": suspension,
    "offline memory is evicted and restored": eviction,
    "a pod is admitted, placed and bound": pod_of_a_cluster,
}


def test_call_enters_the_dispatcher_and_managed_memory_as_often_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvidia_mediated, "library", walking)
    walk = call(tmp_path, monkeypatch)
    rows = re.findall(r"^\| entries of `(.+)` \| \d+ \| (\d+) \|$", PAGE, re.MULTILINE)
    assert len(rows) == 2
    for room, most in rows:
        assert 0 < sum(count for file, count in walk.items() if file.startswith(room)) <= int(most), room


@pytest.mark.parametrize("way", WAYS)
def test_way_leads_through_no_more_files_than_the_page_says(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvidia_mediated, "library", walking)
    walk = WAYS[way](tmp_path, monkeypatch)
    [(most, entries), *_] = walk.most_common()
    print(f"| {way} | {len(walk)} | `{most}`, {entries} |", *sorted(walk.items()), sep="\n")
    row = re.search(rf"^\| {way} \| (\d+) \| `(.+)`, (\d+) \|$", PAGE, re.MULTILINE)
    assert row, f"{way} is not on the page"
    # What goes on beside it may come by or not, and less of it does on a busy machine.
    assert len(walk) <= int(row[1]) + BESIDE
    assert 0 < walk[row[2]] <= 1.25 * int(row[3])
