"""The API server away, slow, refusing and forgetful; races; what others write; clocks that step."""

import asyncio
import json
from pathlib import Path

import pytest

from cluster.resources.inventory import ANNOTATION
from cluster.scheduler import binding, evictions, lease
from tests.cluster.api_server import ApiServer, Trouble
from tests.cluster.extender_support import (
    NODES,
    PODS,
    Object,
    bindings,
    extender,
    node,
    node_of,
    placement,
    pod,
    until,
)

LEASES = "/apis/coordination.k8s.io/v1/namespaces/mgpu-system/leases"


def is_binding(method: str, path: str) -> bool:
    return method == "POST" and path.endswith("/binding")


def is_of_pods(method: str, path: str) -> bool:
    return path == "/api/v1/pods"


async def test_nothing_is_placed_before_the_first_lists(server: ApiServer, tmp_path: Path) -> None:
    server.put(NODES, node("a", 16384))
    trouble = Trouble(is_of_pods, status=503)
    server.troubles.append(trouble)
    async with extender(server, tmp_path, ready=False) as asked:
        assert (await asked.get("/readyz"))[0] == 503
        found = await asked.filter(pod("one", 4096), "a")
        assert not found.get("NodeNames")
        assert "not listed yet" in found["Error"]
        server.troubles.remove(trouble)
        await until(lambda: asked.filter(pod("one", 4096), "a"), lambda answer: not answer["Error"])


@pytest.mark.parametrize("status", [409, 429, 500, 503])
async def test_refused_binding_is_told_and_made_at_the_next_try(
    server: ApiServer, tmp_path: Path, status: int
) -> None:
    server.put(NODES, node("a", 16384))
    made = server.put(PODS, pod("one", 16384))
    async with extender(server, tmp_path) as asked:
        server.troubles.append(Trouble(is_binding, status=status, times=1))
        assert (await asked.filter(made, "a"))["NodeNames"] == ["a"]
        error = await asked.bind(made, "a")
        assert error.startswith("mgpu: pod default/one is not bound: ")
        assert "\n" not in error
        assert node_of(server, "one") is None
        assert await asked.schedule(made, "a") == "a"
        assert placement(server, "one") == {"main": ["GPU-a-0"]}


@pytest.mark.parametrize("status", [409, 429])
async def test_refused_binding_frees_its_cards(server: ApiServer, tmp_path: Path, status: int) -> None:
    server.put(NODES, node("a", 16384))
    async with extender(server, tmp_path) as asked:
        server.troubles.append(Trouble(is_binding, status=status, times=1))
        assert await asked.bind(server.put(PODS, pod("one", 16384)), "a")
        assert await asked.schedule(server.put(PODS, pod("two", 16384)), "a") == "a"


async def test_cards_stay_taken_while_it_is_not_known_whether_a_pod_is_bound(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call is still on its way when it is given up."""
    monkeypatch.setattr(binding, "CALL_SECONDS", 0.2)

    server.put(NODES, node("a", 16384, 16384))
    one = server.put(PODS, pod("one", 16384))
    async with extender(server, tmp_path) as asked:
        server.troubles.append(Trouble(is_binding, status=500, delay_s=1, times=1))
        assert (await asked.bind(one, "a")).startswith("mgpu: pod default/one is not bound: ")
        assert await asked.schedule(server.put(PODS, pod("two", 16384)), "a") == "a"
        assert await asked.schedule(server.put(PODS, pod("three", 16384)), "a") == ""
        # The same cards once more, whichever of both calls is served.
        assert await asked.schedule(one, "a") == "a"
        assert placement(server, "one") != placement(server, "two")


async def test_doubtful_binding_ends_by_the_watch(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was made in the end: the pod is where it was to be, once."""
    monkeypatch.setattr(binding, "CALL_SECONDS", 0.2)

    server.put(NODES, node("a", 16384))
    one = server.put(PODS, pod("one", 16384))
    async with extender(server, tmp_path) as asked:
        server.troubles.append(Trouble(is_binding, delay_s=0.6, times=1))
        assert await asked.bind(one, "a")
        # kube-scheduler's client that hangs up does not stop a server that has begun.
        one["spec"]["nodeName"] = "a"
        one["metadata"]["annotations"] = {"mgpu.dev/placement": '{"main":["GPU-a-0"]}'}
        server.put(PODS, one)
        await until(lambda: asked.bind(one, "a"), lambda error: not error)
        assert await asked.schedule(server.put(PODS, pod("two", 4096)), "a") == ""


async def test_binding_that_was_made_though_its_answer_was_lost_counts(
    server: ApiServer, tmp_path: Path
) -> None:
    server.put(NODES, node("a", 16384))
    one = server.put(PODS, pod("one", 16384))
    async with extender(server, tmp_path) as asked:
        assert await asked.bind(one, "a") == ""
        # As kube-scheduler repeats it.
        assert await asked.bind(one, "a") == ""
        assert bindings(server) <= 2
        assert placement(server, "one") == {"main": ["GPU-a-0"]}


async def test_two_calls_at_once_bind_a_pod_once(server: ApiServer, tmp_path: Path) -> None:
    server.put(NODES, node("a", 16384))
    server.put(NODES, node("b", 16384))
    one = server.put(PODS, pod("one", 16384))
    async with extender(server, tmp_path) as asked:
        server.troubles.append(Trouble(is_binding, delay_s=0.2))
        errors = await asyncio.gather(asked.bind(one, "a"), asked.bind(one, "b"))
        assert sum(not error for error in errors) == 1
        assert bindings(server) == 1
        assert placement(server, "one")["main"][0].startswith(f"GPU-{node_of(server, 'one')}-")


async def test_pods_that_are_bound_at_once_get_cards_of_their_own(server: ApiServer, tmp_path: Path) -> None:
    server.put(NODES, node("a", *[16384] * 8))
    made = [server.put(PODS, pod(f"p{number}", 16384)) for number in range(12)]
    async with extender(server, tmp_path) as asked:
        server.troubles.append(Trouble(is_binding, delay_s=0.1))
        errors = await asyncio.gather(*(asked.bind(each, "a") for each in made))
        bound = [each["metadata"]["name"] for each, error in zip(made, errors, strict=True) if not error]
        assert len(bound) == 8
        assert len({placement(server, name)["main"][0] for name in bound}) == 8


async def test_second_extender_waits_while_the_first_places(server: ApiServer, tmp_path: Path) -> None:
    server.put(NODES, node("a", 16384))
    async with extender(server, tmp_path) as first:
        assert await first.schedule(server.put(PODS, pod("one", 8192)), "a") == "a"
        async with extender(server, tmp_path) as second:
            two = server.put(PODS, pod("two", 8192))
            assert "places pods now" in (await second.filter(two, "a"))["Error"]
            assert "places pods now" in await second.bind(two, "a")
            assert node_of(server, "two") is None
    # It gave the lease back as it ended.
    async with extender(server, tmp_path) as third:
        assert await third.schedule(two, "a") == "a"


async def test_lease_of_an_extender_that_is_gone_is_taken_over(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By this one's own clock: what the other's clock wrote is years ahead."""
    monkeypatch.setattr(lease, "DURATION_SECONDS", 0.5)

    server.put(NODES, node("a", 16384))
    spec = {"holderIdentity": "gone", "renewTime": "2099-01-01T00:00:00.000000Z"}
    server.put(LEASES, {"metadata": {"name": lease.NAME, "namespace": "mgpu-system"}, "spec": spec})
    async with extender(server, tmp_path) as asked:
        one = server.put(PODS, pod("one", 8192))
        assert '"gone" places pods now' in (await asked.filter(one, "a"))["Error"]
        await asyncio.sleep(0.6)
        assert await asked.schedule(one, "a") == "a"


async def test_extender_that_takes_over_knows_what_was_bound_before(
    server: ApiServer, tmp_path: Path
) -> None:
    """Though its own watch has shown none of it."""

    server.put(NODES, node("a", 16384))
    async with extender(server, tmp_path) as asked:
        silent = Trouble(is_of_pods, delay_s=60, times=1)
        server.troubles.append(silent)
        server.hang_up()
        async with asyncio.timeout(10):
            while silent.times:
                await asyncio.sleep(0.02)
        made = pod("one", 16384, nodeName="a")
        made["metadata"]["annotations"] = {"mgpu.dev/placement": '{"main":["GPU-a-0"]}'}
        server.put(PODS, made)
        assert await asked.schedule(server.put(PODS, pod("two", 4096)), "a") == ""


async def test_gap_of_the_watch_loses_no_pod(server: ApiServer, tmp_path: Path) -> None:
    server.put(NODES, node("a", 16384))
    async with extender(server, tmp_path) as asked:
        assert await asked.schedule(server.put(PODS, pod("one", 16384)), "a") == "a"
        server.remove(f"{PODS}/one")
        server.compact()
        two = server.put(PODS, pod("two", 16384))
        await until(lambda: asked.filter(two, "a"), lambda found: bool(found["NodeNames"]))
        server.hang_up()
        assert await asked.schedule(two, "a") == "a"


def test_malformed_inventory_takes_only_its_node_away(
    server: ApiServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async def main() -> None:
        server.put(NODES, node("a", 16384))
        broken = node("b", 16384)
        broken["metadata"]["annotations"][ANNOTATION] = '{"version":1,"cards":[{"index":"0"}]}'
        server.put(NODES, broken)
        server.put(NODES, {"metadata": {"name": "c"}})
        async with extender(server, tmp_path) as asked:
            found = await asked.filter(server.put(PODS, pod("one", 4096)), "a", "b", "c")
            assert found["NodeNames"] == ["a"]
            server.put(NODES, broken | {"status": {"allocatable": {"cpu": "1"}}})
            server.put(NODES, node("b", 32768))
            two = server.put(PODS, pod("two", 32768))
            await until(lambda: asked.filter(two, "a", "b"), lambda answer: answer["NodeNames"] == ["b"])

    asyncio.run(main())
    said = capfd.readouterr().err.splitlines()
    assert sum("node b gets no pods" in line for line in said) == 1
    assert sum("node b has its inventory again" in line for line in said) == 1


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"main": "GPU-a-0"}', '{"main": ["GPU-elsewhere"]}', "[" * 9999]
)
async def test_malformed_placement_is_read_as_mgpud_would_do(
    server: ApiServer, tmp_path: Path, text: str
) -> None:
    """mgpud chooses for a pod without one that can be read, and refuses one that names no card of its."""

    server.put(NODES, node("a", 16384))
    made = pod("one", 16384, nodeName="a")
    made["metadata"]["annotations"] = {"mgpu.dev/placement": text}
    server.put(PODS, made)
    async with extender(server, tmp_path) as asked:
        found = await asked.schedule(server.put(PODS, pod("two", 4096)), "a")
        assert found == ("a" if "elsewhere" in text else "")


@pytest.mark.parametrize("member", ["metadata", "spec", "status"])
@pytest.mark.parametrize("value", [None, [], "text", 7])
async def test_objects_of_any_form_end_nothing(
    server: ApiServer, tmp_path: Path, member: str, value: object
) -> None:
    server.put(NODES, node("a", 16384))
    async with extender(server, tmp_path) as asked:
        odd = pod("odd", 4096)
        odd[member] = value
        await asked.call("filter", {"Pod": odd, "NodeNames": ["a"]})
        await asked.call("filter", {"Pod": value, "NodeNames": ["a"]})
        await asked.call("bind", {"PodName": value, "PodUID": value})
        assert await asked.schedule(server.put(PODS, pod("one", 4096)), "a") == "a"


async def test_pod_that_waits_has_cards_set_aside(server: ApiServer, tmp_path: Path) -> None:
    server.put(NODES, node("a", 16384))
    held = server.put(PODS, _aged(pod("held", 8192, nodeName="a"), 0))
    assert held
    async with extender(server, tmp_path, reserve_after_s=0.2) as asked:
        old = server.put(PODS, _aged(pod("old", 16384), 1))
        young = server.put(PODS, _aged(pod("young", 4096), 2))
        assert (await asked.filter(old, "a"))["NodeNames"] == []
        await asyncio.sleep(0.3)
        assert (await asked.filter(old, "a"))["NodeNames"] == []
        found = await asked.filter(young, "a")
        assert found["NodeNames"] == []
        assert "reserved for pods that wait longer" in found["FailedAndUnresolvableNodes"]["a"]
        server.remove(f"{PODS}/held")
        await until(lambda: asked.filter(old, "a"), lambda answer: answer["NodeNames"] == ["a"])
        assert await asked.schedule(old, "a") == "a"


async def test_pods_of_lower_priority_end_where_no_card_has_room(server: ApiServer, tmp_path: Path) -> None:
    """The node's sum suffices, so that kube-scheduler by itself would end nobody."""

    server.put(NODES, node("a", 16384, 16384))
    for name, card in (("one", 0), ("two", 1)):
        made = _aged(pod(name, 8192, nodeName="a", priority=0), card)
        made["metadata"]["annotations"] = {"mgpu.dev/placement": json.dumps({"main": [f"GPU-a-{card}"]})}
        server.put(PODS, made)
    async with extender(server, tmp_path) as asked:
        polite = server.put(PODS, pod("polite", 16384, priority=9, preemptionPolicy="Never"))
        assert await asked.schedule(polite, "a") == ""
        new = server.put(PODS, pod("new", 16384, priority=9))
        assert (await asked.filter(new, "a"))["NodeNames"] == []
        await until(lambda: asked.filter(new, "a"), lambda answer: answer["NodeNames"] == ["a"])
        assert await asked.schedule(new, "a") == "a"
        # The one that has run longest was spared.
        assert placement(server, "new") == {"main": ["GPU-a-1"]}
        assert node_of(server, "one") == "a"
        there = server.there(f"{PODS}/new")
        assert there["status"]["nominatedNodeName"] == "a"
        assert told(server) == [
            ("new", "Preempting", "pod default/two ends on node a, whose GPU this one gets"),
            ("two", "Preempted", "by default/new of priority 9 on node a, whose GPU it needs"),
        ]


async def test_no_pod_ends_while_kube_scheduler_makes_room_elsewhere(
    server: ApiServer, tmp_path: Path
) -> None:
    for where in ("a", "b"):
        server.put(NODES, node(where, 16384))
        made = server.put(PODS, pod(f"on-{where}", 8192, nodeName=where, priority=0))
    async with extender(server, tmp_path) as asked:
        new = server.put(PODS, pod("new", 16384, priority=9))
        assert (await asked.filter(new, "a"))["NodeNames"] == []
        victims = {"b": {"Pods": [{"UID": made["metadata"]["uid"]}], "NumPDBViolations": 0}}
        found = await asked.call("preempt", {"Pod": new, "NodeNameToMetaVictims": victims})
        assert found["NodeNameToMetaVictims"] == victims
        await asyncio.sleep(2 * evictions.YIELD_SECONDS)
        assert node_of(server, "on-a") == "a"


def test_budget_keeps_a_pod(server: ApiServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        server.put(NODES, node("a", 16384))
        server.put(PODS, pod("one", 8192, nodeName="a", priority=0))
        server.troubles.append(Trouble(lambda method, path: path.endswith("/eviction"), status=429))
        async with extender(server, tmp_path) as asked:
            new = server.put(PODS, pod("new", 16384, priority=9))
            for _ in range(3):
                assert await asked.schedule(new, "a") == ""
                await asyncio.sleep(1.5 * evictions.YIELD_SECONDS)
            assert node_of(server, "one") == "a"
            [(regarding, reason, note)] = told(server)
            assert (regarding, reason) == ("new", "NotPreempted")
            assert note.startswith("pod default/one keeps its GPU on node a: ")

    asyncio.run(main())
    assert sum("is not evicted" in line for line in capfd.readouterr().err.splitlines()) == 1


def told(server: ApiServer) -> list[tuple[str, str, str]]:
    """Events by pod: whose, the reason, the note."""
    found = server.all("/apis/events.k8s.io/v1/namespaces/default/events")
    return [(each["regarding"]["name"], each["reason"], each["note"]) for each in found]


def _aged(made: Object, second: int) -> Object:
    made["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:{second:02}Z"
    return made
