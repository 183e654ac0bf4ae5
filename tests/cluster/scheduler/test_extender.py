"""The extender over HTTP: the protocol's forms, placements by card, and what it says when there is no room.

The members are the field names of k8s.io/kube-scheduler/extender/v1, whose types have no JSON tags.
"""

import json
import random
from collections import Counter
from pathlib import Path

from tests.cluster.api_server import ApiServer
from tests.cluster.extender_support import (
    CORE,
    MEMORY,
    NODES,
    PODS,
    extender,
    node,
    node_of,
    placement,
    pod,
    until,
)


async def test_filter_answers_extender_filter_result(server: ApiServer, tmp_path: Path) -> None:
    server.put(NODES, node("a", 16384))
    server.put(NODES, node("b", 8192))
    async with extender(server, tmp_path) as asked:
        found = await asked.filter(pod("one", 12000), "a", "b", "c")
        assert found["NodeNames"] == ["a"]
        assert found["FailedNodes"] == {}
        assert found["Error"] == ""
        assert found["FailedAndUnresolvableNodes"].keys() == {"b", "c"}


async def test_filter_leaves_the_best_node_alone(server: ApiServer, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        server.put(NODES, node(name, 16384))
    server.put(PODS, pod("there", 8192) | {"spec": pod("", 8192)["spec"] | {"nodeName": "b"}})
    async with extender(server, tmp_path, score="binpack") as asked:
        assert (await asked.filter(pod("one", 8192), "a", "b", "c"))["NodeNames"] == ["b"]


async def test_pod_with_preferences_keeps_every_node_that_fits(server: ApiServer, tmp_path: Path) -> None:
    for name in ("a", "b"):
        server.put(NODES, node(name, 16384))
    spread = [{"whenUnsatisfiable": "ScheduleAnyway"}]
    async with extender(server, tmp_path) as asked:
        one = pod("one", 4096, topologySpreadConstraints=spread)
        assert (await asked.filter(one, "a", "b"))["NodeNames"] == ["a", "b"]
        scores = await asked.call("prioritize", {"Pod": one, "NodeNames": ["a", "b"]})
        assert {each["Host"] for each in scores} == {"a", "b"}
        assert all(type(each["Score"]) is int and 0 <= each["Score"] <= 10 for each in scores)


async def test_node_where_nothing_came_of_it_is_offered_after_the_others(
    server: ApiServer, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        server.put(NODES, node(name, 16384))
    async with extender(server, tmp_path) as asked:
        one = pod("one", 4096)
        seen = [(await asked.filter(one, "a", "b"))["NodeNames"][0] for _ in range(4)]
        assert sorted(seen[:2]) == ["a", "b"]
        assert seen[2:] == seen[:2]


async def test_binding_carries_the_placement(server: ApiServer, tmp_path: Path) -> None:
    server.put(NODES, node("a", 16384, 16384))
    async with extender(server, tmp_path) as asked:
        for name, core in (("one", 200), ("two", None)):
            made = server.put(PODS, pod(name, None if core else 4096, core))
            if core:
                assert await asked.schedule(made, "a") == "a"
                assert placement(server, name) == {"main": ["GPU-a-0", "GPU-a-1"]}
            else:
                assert await asked.schedule(made, "a") == ""


async def test_refusal_names_cards_in_one_line(server: ApiServer, tmp_path: Path) -> None:
    """It fits the node's sum, and no card."""

    server.put(NODES, node("a", 16384, 16384))
    async with extender(server, tmp_path, score="spread") as asked:
        for name in ("one", "two"):
            assert await asked.schedule(server.put(PODS, pod(name, 10000)), "a") == "a"
        found = await asked.filter(server.put(PODS, pod("three", 8000)), "a")
        assert found["NodeNames"] == []
        assert found["FailedAndUnresolvableNodes"] == {
            "a": "mgpu: node a: 8000 MiB asked, but the most that is free is 6384 MiB, on GPU 0"
        }


async def test_emptiest_nodes_say_why_by_name_and_the_others_in_short(
    server: ApiServer, tmp_path: Path
) -> None:
    """Reasons are written into the pod's condition: with many nodes they have to stay a few lines."""

    for number in range(40):
        server.put(NODES, node(f"n{number:02}", 4096 + 256 * number))
    server.put(NODES, {"metadata": {"name": "cpu"}, "status": {"allocatable": {"cpu": "8"}}})
    async with extender(server, tmp_path) as asked:
        found = await asked.filter(
            server.put(PODS, pod("large", 80_000)), *(f"n{i:02}" for i in range(40)), "cpu"
        )
        reasons = Counter(found["FailedAndUnresolvableNodes"].values())
        named = [reason for reason in reasons if "node n" in reason]
        assert len(named) == 3
        assert reasons["mgpu: no GPU of it has room"] == 37
        assert reasons["mgpu: it has no mgpu.dev/inventory"] == 1
        assert sum(map(len, reasons)) < 400


async def test_request_that_is_none_is_refused_in_mgpuds_words(server: ApiServer, tmp_path: Path) -> None:
    server.put(NODES, node("a", 16384))
    async with extender(server, tmp_path) as asked:
        made = pod("one", 4096)
        made["metadata"]["annotations"] = {"mgpu.dev/policy": "fair"}
        found = await asked.filter(made, "a")
        [line] = found["FailedAndUnresolvableNodes"].values()
        assert line.startswith('mgpu: mgpu.dev/policy is "fair"; allowed: ')
        assert "\n" not in line


async def test_init_container_uses_the_cards_of_one_that_asks_for_the_same(
    server: ApiServer, tmp_path: Path
) -> None:
    server.put(NODES, node("a", 16384))
    async with extender(server, tmp_path) as asked:
        made = pod("one", 16384)
        made["spec"]["initContainers"] = [{**made["spec"]["containers"][0], "name": "first"}]
        assert await asked.schedule(server.put(PODS, made), "a") == "a"
        assert placement(server, "one") == {"main": ["GPU-a-0"], "first": ["GPU-a-0"]}


async def test_cards_of_a_pod_that_ended_are_free(server: ApiServer, tmp_path: Path) -> None:
    server.put(NODES, node("a", 16384))
    async with extender(server, tmp_path) as asked:
        assert await asked.schedule(server.put(PODS, pod("one", 16384)), "a") == "a"
        two = server.put(PODS, pod("two", 16384))
        assert await asked.schedule(two, "a") == ""
        one = server.there(f"{PODS}/one")
        server.put(PODS, one | {"status": {"phase": "Succeeded"}})
        await until(lambda: asked.filter(two, "a"), lambda found: bool(found["NodeNames"]))


async def test_state_is_rebuilt_from_the_api_alone(server: ApiServer, tmp_path: Path) -> None:
    server.put(NODES, node("a", 16384, 16384))
    async with extender(server, tmp_path) as asked:
        assert await asked.schedule(server.put(PODS, pod("one", 16384)), "a") == "a"
        first = placement(server, "one")["main"]
    async with extender(server, tmp_path) as asked:
        assert await asked.schedule(server.put(PODS, pod("two", 16384)), "a") == "a"
        assert placement(server, "two")["main"] != first


async def test_preempt_ends_who_shares_the_card(server: ApiServer, tmp_path: Path) -> None:
    server.put(NODES, node("a", 16384, 16384))
    held = {}
    for name, card in (("one", 0), ("two", 0), ("three", 1), ("four", 1)):
        made = pod(name, 8192, nodeName="a", priority=0)
        made["metadata"]["annotations"] = {"mgpu.dev/placement": json.dumps({"main": [f"GPU-a-{card}"]})}
        held[name] = server.put(PODS, made)["metadata"]["uid"]
    async with extender(server, tmp_path) as asked:
        offered = {"a": {"Pods": [{"UID": held["one"]}], "NumPDBViolations": 1}}
        args = {"Pod": pod("new", 16384, priority=10), "NodeNameToMetaVictims": offered}
        found = (await asked.call("preempt", args))["NodeNameToMetaVictims"]
        uids = {each["UID"] for each in found["a"]["Pods"]}
        assert {held["one"], held["two"]} == uids
        assert found["a"]["NumPDBViolations"] == 1
        equal = args | {"Pod": pod("other", 16384, priority=0)}
        assert (await asked.call("preempt", equal))["NodeNameToMetaVictims"] == {}


async def test_call_without_node_names_says_what_to_configure(server: ApiServer, tmp_path: Path) -> None:
    async with extender(server, tmp_path) as asked:
        found = await asked.call("filter", {"Pod": pod("one", 4096), "Nodes": {"items": []}})
        assert "nodeCacheCapable: true" in found["Error"]


async def test_health_and_metrics_are_served(server: ApiServer, tmp_path: Path) -> None:
    server.put(NODES, node("a", 16384))
    async with extender(server, tmp_path) as asked:
        assert await asked.schedule(server.put(PODS, pod("one", 16384)), "a") == "a"
        assert await asked.get("/healthz") == (200, "ok\n")
        status, text = await asked.get("/metrics")
        assert status == 200
        assert 'mgpu_scheduler_bindings_total{outcome="bound"} 1.0' in text
        assert 'mgpu_scheduler_call_seconds_count{verb="filter"} 1.0' in text


async def test_thousand_pods_never_overcommit_a_card(server: ApiServer, tmp_path: Path) -> None:
    """By a count of its own, from the placements and the limits as the API server has them."""

    chance = random.Random(1)
    names = [f"n{number}" for number in range(40)]
    for name in names:
        server.put(NODES, node(name, *[chance.choice((16384, 24576))] * chance.choice((1, 2, 4, 8))))
    placed, live = 0, []
    async with extender(server, tmp_path) as asked:
        for number in range(1000):
            made = server.put(
                PODS,
                pod(
                    f"p{number}",
                    chance.choice((1024, 4000, 8192, 16384)),
                    chance.choice((5, 10, 30, 50)),
                ),
            )
            if await asked.schedule(made, *names):
                placed += 1
                live.append(f"p{number}")
            if len(live) > 300 and number % 3 == 0:
                server.remove(f"{PODS}/{live.pop(chance.randrange(len(live)))}")
            if number % 250 == 249:
                _check_cards(server)
    assert placed > 600


def _check_cards(server: ApiServer) -> None:
    sizes, memory, core, containers = {}, Counter[str](), Counter[str](), Counter[str]()
    for each in server.all(NODES):
        for card in json.loads(each["metadata"]["annotations"]["mgpu.dev/inventory"])["cards"]:
            sizes[card["uuid"]] = card["memory_mib"]
    for each in server.all(PODS):
        where = node_of(server, each["metadata"]["name"])
        for name, uuids in placement(server, each["metadata"]["name"]).items():
            limits = next(one for one in each["spec"]["containers"] if one["name"] == name)["resources"][
                "limits"
            ]
            for card in uuids:
                assert card.startswith(f"GPU-{where}-")
                memory[card] += int(limits[MEMORY]) // len(uuids)
                core[card] += int(limits[CORE]) // len(uuids)
                containers[card] += 1
    assert memory, "nothing was placed"
    assert all(total <= sizes[card] for card, total in memory.items())
    assert max(core.values()) <= 100
    assert max(containers.values()) <= 16
