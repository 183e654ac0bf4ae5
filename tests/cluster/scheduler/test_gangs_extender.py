"""Gangs over HTTP: pods that kube-scheduler brings one by one are bound all at once, or none of them is."""

import asyncio
from pathlib import Path
from typing import Any

from tests.cluster.api_server import ApiServer, Trouble
from tests.cluster.extender_support import (
    NODES,
    PODS,
    Extender,
    Object,
    bindings,
    extender,
    node,
    node_of,
    placement,
    pod,
    until,
)

GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"
WHOLE = 16384
NAME = "pod-group.scheduling.sigs.k8s.io/name"
LEAST = "pod-group.scheduling.sigs.k8s.io/min-available"


def rank(server: ApiServer, name: str, gang: str = "train", size: int = 3, **spec: Any) -> Object:
    made = pod(name, WHOLE, **spec)
    made["metadata"]["labels"] = {NAME: gang, LEAST: str(size)}
    return server.put(PODS, made)


async def cycle(asked: Extender, one: Object, *names: str) -> str:
    """Filter and bind; why the pod is not bound, "" where it is."""
    found = await asked.filter(one, *names)
    if found["Error"] or not found["NodeNames"]:
        return str(found["Error"] or next(iter(found["FailedAndUnresolvableNodes"].values())))
    return await asked.bind(one, found["NodeNames"][0])


async def all_known(asked: Extender, *pods: Object) -> None:
    """The watch has brought them."""

    async def line() -> str:
        found = await asked.filter(pods[0], "nowhere")
        return str(found["Error"] or found["FailedAndUnresolvableNodes"])

    await until(line, lambda said: " pods that it takes" not in said)


async def test_no_pod_of_a_gang_is_bound_before_all_have_come(server: ApiServer, tmp_path: Path) -> None:
    server.put(NODES, node("a", WHOLE, WHOLE))
    server.put(NODES, node("b", WHOLE, WHOLE))
    async with extender(server, tmp_path) as asked:
        first, second = rank(server, "r0"), rank(server, "r1")
        assert "has 2 of the 3 pods that it takes" in await until(
            lambda: cycle(asked, first, "a", "b"), lambda said: "has 2 of" in said
        )
        third = rank(server, "r2")
        await all_known(asked, first, second, third)
        waits = [asyncio.create_task(cycle(asked, each, "a", "b")) for each in (first, second)]
        done, _ = await asyncio.wait(waits, timeout=0.5)
        assert not done
        assert bindings(server) == 0
        assert await cycle(asked, third, "a", "b") == ""
        assert await asyncio.gather(*waits) == ["", ""]
        cards = [placement(server, name)["main"][0] for name in ("r0", "r1", "r2")]
        assert len(set(cards)) == 3


async def test_gang_that_does_not_fit_whole_leaves_its_cards_to_others(
    server: ApiServer, tmp_path: Path
) -> None:
    server.put(NODES, node("a", WHOLE, WHOLE))
    async with extender(server, tmp_path) as asked:
        ranks = [rank(server, f"r{number}") for number in range(3)]
        await all_known(asked, *ranks)
        for each in ranks:
            assert await cycle(asked, each, "a") == (
                "mgpu: group default/train: only 2 of 3 pods have room at once, so none is placed"
            )
        for name in ("one", "two"):
            assert await asked.schedule(server.put(PODS, pod(name, WHOLE)), "a") == "a"


async def test_gang_that_does_not_come_gives_all_back_in_one_line(server: ApiServer, tmp_path: Path) -> None:
    """kube-scheduler writes the line into an event of each pod that waited."""

    server.put(NODES, node("a", WHOLE, WHOLE, WHOLE))
    async with extender(server, tmp_path, gang_s=3.0) as asked:
        ranks = [rank(server, f"r{number}") for number in range(3)]
        await all_known(asked, *ranks)
        said = await asyncio.gather(*(cycle(asked, each, "a") for each in ranks[:2]))
        for number, line in enumerate(said):
            assert line == (
                f"mgpu: pod default/r{number} is not bound: group default/train: 2 of 3 pods came in time, "
                "so all that was kept for it is given back; the scheduler tries again"
            )
        assert bindings(server) == 0
        for name in ("one", "two", "three"):
            assert await asked.schedule(server.put(PODS, pod(name, WHOLE)), "a") == "a"


async def test_extender_that_starts_anew_places_the_rest_of_a_gang(
    server: ApiServer, tmp_path: Path
) -> None:
    server.put(NODES, node("a", WHOLE, WHOLE, WHOLE))
    ranks = [rank(server, f"r{number}") for number in range(3)]
    async with extender(server, tmp_path) as asked:
        # Two bindings are refused once all have come.
        server.troubles.append(
            Trouble(lambda method, path: path.endswith(("r1/binding", "r2/binding")), status=409)
        )
        said = await asyncio.gather(*(cycle(asked, each, "a") for each in ranks))
        assert sorted(map(bool, said)) == [False, True, True]
        # Their cards are kept for them.
        assert await cycle(asked, server.put(PODS, pod("other", WHOLE)), "a") != ""
        server.troubles.clear()
        assert await cycle(asked, ranks[1], "a") == ""
    async with extender(server, tmp_path) as asked:
        other = server.there(f"{PODS}/other")
        assert await cycle(asked, other, "a") != ""
        assert await cycle(asked, ranks[2], "a") == ""
        assert len({placement(server, f"r{number}")["main"][0] for number in range(3)}) == 3


async def test_pod_that_may_not_be_where_the_others_are_is_placed_by_its_own_nodes(
    server: ApiServer, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        server.put(NODES, node(name, WHOLE, WHOLE))
    async with extender(server, tmp_path) as asked:
        ranks = [rank(server, f"r{number}", size=2) for number in range(2)]
        await all_known(asked, *ranks)

        async def brought(one: Object, name: str) -> None:
            """As kube-scheduler does, again after a refusal, whatever becomes of the other."""
            await until(lambda: cycle(asked, one, name), lambda said: not said)

        await asyncio.gather(brought(ranks[0], "a"), brought(ranks[1], "b"))
        assert (node_of(server, "r0"), node_of(server, "r1")) == ("a", "b")


async def test_replacement_of_one_pod_does_not_wait_for_those_that_are_done(
    server: ApiServer, tmp_path: Path
) -> None:
    server.put(NODES, node("a", WHOLE, WHOLE, WHOLE))
    async with extender(server, tmp_path) as asked:
        ranks = [rank(server, f"r{number}") for number in range(3)]
        await all_known(asked, *ranks)
        assert await asyncio.gather(*(cycle(asked, each, "a") for each in ranks)) == ["", "", ""]
        for name in ("r0", "r1"):
            ended = server.there(f"{PODS}/{name}")
            server.put(PODS, ended | {"status": {"phase": "Succeeded"}})
        again = rank(server, "r1-again")
        await until(lambda: cycle(asked, again, "a"), lambda said: not said)


def test_size_is_that_of_the_pods_group(server: ApiServer, tmp_path: Path) -> None:
    async def main() -> None:
        server.put(NODES, node("a", WHOLE, WHOLE))
        async with extender(server, tmp_path) as asked:
            made = [pod(f"r{number}", WHOLE) for number in range(2)]
            for each in made:
                each["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "train"}
            first, second = (server.put(PODS, each) for each in made)
            assert "pod group default/train is not there" in await cycle(asked, first, "a")
            server.put(GROUPS, {"metadata": {"name": "train"}, "spec": {"minMember": 2}})

            async def both() -> list[str]:
                return list(await asyncio.gather(*(cycle(asked, each, "a") for each in (first, second))))

            await until(both, lambda said: not any(said))

    asyncio.run(main())


async def test_nobody_ends_for_one_pod_of_a_gang(server: ApiServer, tmp_path: Path) -> None:
    server.put(NODES, node("a", WHOLE))
    low = pod("low", WHOLE, nodeName="a") | {"status": {"phase": "Running"}}
    low = server.put(PODS, low)
    async with extender(server, tmp_path) as asked:
        victims = {"a": {"Pods": [{"UID": low["metadata"]["uid"]}], "NumPDBViolations": 0}}
        for one, found in (
            (pod("high", WHOLE, priority=9), {"a"}),
            (rank(server, "r0", priority=9), set()),
        ):
            answer = await asked.call("preempt", {"Pod": one, "NodeNameToMetaVictims": victims})
            assert answer["NodeNameToMetaVictims"].keys() == found
