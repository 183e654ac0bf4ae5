"""The same promises through every engine and every way into it: a cap that is seen and holds, preemption,
release, exec, removal.
"""

import json
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from tests.cri.client import CallError
from tests.support import arbiter, cri, crio
from tests.support.arbiter import Arbiter
from tests.support.colocation import BURST_REQUESTS, MS, NOISE_MS, came_back, mark, preempted, row, working
from tests.support.commands import CommandFailedError
from tests.support.programs import Programs, inside
from tests.support.routes import (
    CRUN,
    LOAD,
    RUNC,
    ByCri,
    ByCtr,
    ByDocker,
    ByPodman,
    Route,
    started,
)
from tests.support.waiting import until

MIB = 1 << 20
HOLD_MS = 100
CONTEXT_MIB = 200
CONFIG = f"hold_ms = {HOLD_MS}\npolicy = 'native-burst-share'\n"
OUT_OF_MEMORY = 2


class Way(NamedTuple):
    """A route, and an mgpu that is this route's own."""

    route: Route
    mgpu: Arbiter


# The fixture that is the engine, and the route through it.
ROUTES: dict[str, tuple[str, Callable[..., Route]]] = {
    "docker": ("docker_daemon", ByDocker),
    "ctr-shim": ("kubelet", lambda engine, built: ByCtr(engine, built, shim=True)),
    "ctr-binary": ("kubelet", lambda engine, built: ByCtr(engine, built, shim=False)),
    "cri-shim": ("kubelet", lambda engine, built: ByCri(engine, built, cri.BY_SHIM)),
    "cri-binary": ("kubelet", lambda engine, built: ByCri(engine, built, cri.BY_BINARY)),
    "crio-runc": ("on_crio", lambda engine, built: ByCri(engine, built, crio.HANDLER)),
    "crio-crun": ("on_crio", lambda engine, built: ByCri(engine, built, crio.HANDLER, CRUN)),
    "podman-runc": ("pod", lambda engine, built: ByPodman(engine, built, RUNC)),
    "podman-crun": ("pod", lambda engine, built: ByPodman(engine, built, CRUN)),
    "podman-precreate": ("pod", lambda engine, built: ByPodman(engine, built, RUNC, hook=True)),
}


@pytest.fixture(scope="module", params=ROUTES)
def way(request: pytest.FixtureRequest, built: Programs) -> Iterator[Way]:
    fixture, make = ROUTES[request.param]
    route = make(request.getfixturevalue(fixture), built)
    if fixture == "on_crio" and not crio.takes(route.below):
        pytest.skip(f"this {route.below} does not take CRI-O's specs")
    with arbiter.running("v100-16", runtime=route.below, node_config=CONFIG) as mgpu:
        yield Way(route, mgpu)


def everything_back(mgpu: Arbiter) -> bool:
    used = [card.used_bytes for card in mgpu.account().cards]
    return mgpu.containers() == [] and used == [0] and mgpu.used_bytes() == [0]


def test_cap_is_seen_and_holds_for_all_processes_together(way: Way) -> None:
    with started(way.route, way.mgpu, {"memory-mib": "1024"}, inside("hold"), "300") as box:
        until(lambda: box.output() == "held 0\n", "its first process holds 300 MiB beside its context")
        found = row(way.mgpu, box.id)
        assert found is not None, "mgpud lists it under another name"
        assert (found["cards"][0]["memory_mib"], found["cards"][0]["used_bytes"]) == (1024, 500 * MIB)
        [gpu] = json.loads(box.execute("gpustat", "--json"))["gpus"]
        assert (gpu["memory.used"], gpu["memory.total"]) == (500, 1024)
        # 524 MiB are left, and each process' context takes 200 of them.
        [card] = json.loads(box.execute(inside("capped")))
        assert card["total_bytes"] == card["info_total_bytes"] == 1024 * MIB
        assert card["free_bytes"] == (524 - CONTEXT_MIB) * MIB
        assert (card["over"], card["exact"], card["after"]) == (OUT_OF_MEMORY, 0, 0)
        assert box.try_execute(inside("hold"), "325", "1", "0") == f"held {OUT_OF_MEMORY}\n"
        until(lambda: way.mgpu.used_bytes() == [500 * MIB], "what was exec'd has given everything back")
    until(lambda: everything_back(way.mgpu), "everything is back")


def test_online_preempts_offline_which_goes_on_after_the_hold(way: Way) -> None:
    saturate = (LOAD, "saturate", "--kernel-us", "2000", "--seconds", "60")
    burst = [LOAD, "burst", "--period-ms", "0", "--kernels", "2", "--kernel-us", "500"]
    burst += ["--requests", str(BURST_REQUESTS)]
    since = mark(way.mgpu)
    with started(way.route, way.mgpu, {"memory-mib": "1024", "qos": "offline"}, *saturate) as low:
        offline = working(way.mgpu, low.id)
        with started(way.route, way.mgpu, {"memory-mib": "1024"}, *burst) as high:
            online = working(way.mgpu, high.id)
            until(lambda: row(way.mgpu, high.id) is None, "online has ended, and its grant with it")
        found = came_back(since, online=online, offline=[offline])
        off_ns, back_ns = preempted(found, online=online, offline=[offline], hold_ms=HOLD_MS)
    assert off_ns < NOISE_MS * MS
    assert HOLD_MS * MS <= back_ns < (HOLD_MS + NOISE_MS) * MS
    until(lambda: everything_back(way.mgpu), "everything is back")


def test_removed_in_the_middle_of_its_work(way: Way) -> None:
    saturate = (LOAD, "saturate", "--kernel-us", "2000", "--seconds", "60")
    with started(way.route, way.mgpu, {"memory-mib": "1024"}, *saturate) as box:
        working(way.mgpu, box.id)
        assert way.mgpu.used_bytes() != [0]
    until(lambda: everything_back(way.mgpu), "everything is back")


def test_engine_shows_mgpus_refusal_line(way: Way) -> None:
    with pytest.raises((CommandFailedError, CallError)) as refused:
        way.route.start(way.mgpu, {"memory-mib": "17"}, "true").remove()
    key = "MGPU_MEMORY_MIB" if isinstance(way.route, ByDocker) else "mgpu.dev/memory-mib"
    shown = str(refused.value).replace("\\", "")
    # podman has the runtime's name in place of ours.
    assert f'mgpu: {key} is "17"; allowed: ' in shown or isinstance(way.route, ByPodman)
    assert f': {key} is "17"; allowed: ' in shown
    assert way.mgpu.containers() == []
