"""A node whose device plugin is away loses one start, whatever waits for it."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cluster.scheduler import binding, starts
from tests.cluster.api_server import ApiServer, Trouble
from tests.cluster.extender_support import NODES, PODS, Extender, Object, extender, node, node_of, pod, until

QUEUE = 40
TAKEN: Object = {"phase": "Pending", "startTime": "2026-01-01T00:00:00Z"}
REFUSED: Object = {
    "phase": "Failed",
    "reason": "UnexpectedAdmissionError",
    "startTime": "2026-01-01T00:00:00Z",
}
# Of a node that is full by kubelet's own count.
NO_ROOM: Object = {"phase": "Failed", "reason": "OutOfmgpu.dev/memory-64mib"}


@asynccontextmanager
async def kubelets(server: ApiServer, says: Callable[[str], Object]) -> AsyncGenerator[None]:
    """Of all nodes: each pod that is bound gets this status, a moment later."""

    async def answer() -> None:
        told: set[str] = set()
        while True:
            for name in [f"p{number}" for number in range(QUEUE)]:
                there = node_of(server, name)
                if there and name not in told:
                    told.add(name)
                    await asyncio.sleep(0.03)
                    found = server.there(f"{PODS}/{name}")
                    server.put(PODS, found | {"status": says(there)})
            await asyncio.sleep(0.005)

    task = asyncio.ensure_future(answer())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def queue(asked: Extender, server: ApiServer, names: list[str], seconds: float) -> None:
    """So many cycles of a stock scheduler, which tries again what had an error."""
    waiting = {f"p{number}": server.put(PODS, pod(f"p{number}", 256)) for number in range(QUEUE)}
    ends = asyncio.get_running_loop().time() + seconds

    async def cycle(name: str) -> None:
        while asyncio.get_running_loop().time() < ends:
            found = await asked.filter(waiting[name], *names)
            if found.get("NodeNames") and not await asked.bind(waiting[name], found["NodeNames"][0]):
                return
            await asyncio.sleep(0.1)

    await asyncio.gather(*map(cycle, waiting))


def phases(server: ApiServer, phase: str) -> int:
    found = (server.get(f"{PODS}/p{number}") for number in range(QUEUE))
    return sum(each is not None and each["status"]["phase"] == phase for each in found)


@pytest.mark.parametrize("answer", [REFUSED, NO_ROOM])
async def test_queue_of_forty_loses_one_start(server: ApiServer, tmp_path: Path, answer: Object) -> None:
    server.put(NODES, node("a", 16384))
    async with extender(server, tmp_path, answer_s=3.0) as asked, kubelets(server, lambda node: answer):
        await queue(asked, server, ["a"], 3.0)
        assert phases(server, "Failed") == 1
        late = server.put(PODS, pod("late", 256))
        found = await asked.filter(late, "a")
        assert "kubelet of node a refused a pod a moment ago" in found["Error"]


async def test_other_nodes_take_what_waits(server: ApiServer, tmp_path: Path) -> None:
    for name in ("a", "b"):
        server.put(NODES, node(name, 16384))
    async with (
        extender(server, tmp_path, answer_s=3.0) as asked,
        kubelets(server, lambda node: REFUSED if node == "a" else TAKEN),
    ):
        await queue(asked, server, ["a", "b"], 8.0)
        assert phases(server, "Failed") <= 1
        there = [node_of(server, f"p{number}") for number in range(QUEUE)]
        # A card takes 16 containers.
        assert there.count("b") == 16


async def test_node_is_open_again_by_itself(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starts, "BAR_S", 0.5)
    answers = [REFUSED]

    server.put(NODES, *[node("a", 16384)])
    async with (
        extender(server, tmp_path, answer_s=3.0) as asked,
        kubelets(server, lambda node: answers.pop() if answers else TAKEN),
    ):
        await queue(asked, server, ["a"], 6.0)
        assert phases(server, "Failed") == 1
        assert sum(node_of(server, f"p{number}") == "a" for number in range(QUEUE)) == 17


async def test_kubelet_that_says_nothing_gets_no_second_pod(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that was killed: it refuses all that it finds when it is back, before its plugins are."""
    monkeypatch.setattr(starts, "SILENT_S", 3.0)
    says = "kubelet of node a has not answered"
    for name in ("a", "b"):
        server.put(NODES, node(name, 16384))
    first, second = (server.put(PODS, pod(name, 256)) for name in ("p0", "p1"))
    async with extender(server, tmp_path, answer_s=0.3) as asked:
        assert not await asked.bind(first, "a")
        assert says in await asked.bind(second, "a")
        assert says in (await asked.filter(second, "a"))["Error"]
        assert (await asked.filter(second, "a", "b"))["NodeNames"] == ["b"]
        await until(lambda: asked.filter(second, "a"), lambda answer: answer.get("NodeNames") == ["a"])
        assert not await asked.bind(second, "a")


async def test_late_answer_opens_the_node(server: ApiServer, tmp_path: Path) -> None:
    server.put(NODES, node("a", 16384))
    first, second = (server.put(PODS, pod(name, 256)) for name in ("p0", "p1"))
    async with extender(server, tmp_path, answer_s=0.2) as asked:
        assert not await asked.bind(first, "a")
        await until(lambda: asked.filter(second, "a"), lambda answer: "not answered" in answer["Error"])
        server.put(PODS, server.there(f"{PODS}/p0") | {"status": TAKEN})
        await until(lambda: asked.filter(second, "a"), lambda answer: answer.get("NodeNames") == ["a"])
        assert not await asked.bind(second, "a")


async def test_failure_of_an_earlier_time_bars_nothing(server: ApiServer, tmp_path: Path) -> None:
    server.put(NODES, node("a", 16384))
    old = pod("old", 256, nodeName="a")
    server.put(PODS, old | {"status": REFUSED})
    made = server.put(PODS, pod("p0", 256))
    async with extender(server, tmp_path) as asked:
        await until(lambda: asked.filter(made, "a"), lambda answer: answer["NodeNames"] == ["a"])
        assert not await asked.bind(made, "a")


async def test_doubtful_binding_is_not_taken_back_for_a_refused_pod(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server may have it: its cards are no other's until that is known."""
    monkeypatch.setattr(binding, "CALL_SECONDS", 0.2)

    server.put(NODES, node("a", 16384))
    other, one, late = (server.put(PODS, pod(name, 256)) for name in ("other", "one", "late"))
    async with extender(server, tmp_path) as asked:
        assert not await asked.bind(other, "a")
        slow = Trouble(lambda method, path: path.endswith("/binding"), delay_s=0.6, times=1)
        server.troubles.append(slow)
        assert "is not bound" in await asked.bind(one, "a")
        bound = server.there(f"{PODS}/other")
        server.put(PODS, bound | {"status": REFUSED})
        await until(lambda: asked.filter(late, "a"), lambda answer: "refused a pod" in answer["Error"])
        assert not await asked.bind(one, "a")
        assert node_of(server, "one") == "a"
