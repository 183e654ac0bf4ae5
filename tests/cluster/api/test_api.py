"""The client of the API server: what it asks, and how it goes on after every sort of gap."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from cluster.api.client import Client
from cluster.api.errors import ApiProblem
from cluster.api.follow import Change, Changed, Deleted, Listed, follow
from cluster.api.kinds import BINDING, NODE, POD
from tests.cluster.api_server import ApiServer, Trouble

PODS = "/api/v1/namespaces/default/pods"


def pod(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [], **spec},
    }


def client(server: ApiServer, folder: Path) -> Client:
    return Client(str(server.kubeconfig(folder)))


async def test_created_object_is_read_back_and_listed(server: ApiServer, tmp_path: Path) -> None:
    async with client(server, tmp_path) as api:
        made = await api.create(POD, pod("one"))
        assert await api.get(POD, "one", "default") == made
        objects, version = await api.list(POD)
        assert [one["metadata"]["name"] for one in objects] == ["one"]
        assert int(version) >= int(made["metadata"]["resourceVersion"])


async def test_merge_deletes_members_that_are_none(server: ApiServer, tmp_path: Path) -> None:
    async with client(server, tmp_path) as api:
        server.put("/api/v1/nodes", {"metadata": {"name": "n", "annotations": {"a": "1", "b": "2"}}})
        node = await api.merge(NODE, "n", {"metadata": {"annotations": {"a": None, "c": "3"}}})
        assert node["metadata"]["annotations"] == {"b": "2", "c": "3"}


async def test_binding_brings_its_annotations_into_the_pod_once(server: ApiServer, tmp_path: Path) -> None:
    async with client(server, tmp_path) as api:
        await api.create(POD, pod("one"))
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": "one",
                "namespace": "default",
                "annotations": {"mgpu.dev/placement": "{}"},
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
        }
        await api.create(BINDING, binding)
        bound = await api.get(POD, "one", "default")
        assert bound["spec"]["nodeName"] == "n1"
        assert bound["metadata"]["annotations"] == {"mgpu.dev/placement": "{}"}
        with pytest.raises(ApiProblem) as problem:
            await api.create(BINDING, binding)
        assert problem.value.is_conflict


async def test_stale_replace_is_a_conflict(server: ApiServer, tmp_path: Path) -> None:
    async with client(server, tmp_path) as api:
        old = await api.create(POD, pod("one"))
        await api.merge(POD, "one", {"metadata": {"labels": {"a": "b"}}}, "default")
        with pytest.raises(ApiProblem) as problem:
            await api.replace(POD, old)
        assert problem.value.is_conflict


@pytest.mark.parametrize(
    ("status", "passing"), [(404, False), (403, False), (429, True), (500, True), (503, True)]
)
async def test_refusal_is_one_line_that_says_whether_to_ask_again(
    server: ApiServer, tmp_path: Path, status: int, passing: bool
) -> None:
    async with client(server, tmp_path) as api:
        server.troubles.append(Trouble(lambda method, path: True, status))
        with pytest.raises(ApiProblem) as problem:
            await api.get(POD, "one", "default")
        assert (problem.value.code, problem.value.is_passing) == (status, passing)
        assert "\n" not in str(problem.value)


def test_no_kubeconfig_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ApiProblem, match="set KUBECONFIG"):
        Client(str(tmp_path / "absent"))


async def _until(changes: AsyncIterator[Change], wanted: type[Change], name: str | None = None) -> Change:
    async with asyncio.timeout(20):
        while True:
            change = await anext(changes)
            if isinstance(change, wanted) and (
                name is None or (not isinstance(change, Listed) and change.value["metadata"]["name"] == name)
            ):
                return change


async def test_follow_tells_of_all_that_is_made_changed_and_deleted(
    server: ApiServer, tmp_path: Path
) -> None:
    server.put(PODS, pod("old"))
    async with client(server, tmp_path) as api, aclosing(follow(api, POD)) as changes:
        first = await _until(changes, Listed)
        assert isinstance(first, Listed)
        assert len(first.objects) == 1
        server.put(PODS, pod("new"))
        assert isinstance(await _until(changes, Changed, "new"), Changed)
        server.remove(f"{PODS}/old")
        assert isinstance(await _until(changes, Deleted, "old"), Deleted)


@pytest.mark.parametrize("gap", ["compact", "hang_up"])
async def test_follow_misses_nothing_over_a_gap(server: ApiServer, tmp_path: Path, gap: str) -> None:
    async with client(server, tmp_path) as api, aclosing(follow(api, POD)) as changes:
        await _until(changes, Listed)
        waiting = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0.1)
        server.put(PODS, pod("in-the-gap"))
        await waiting
        getattr(server, gap)()
        server.put(PODS, pod("after"))
        names: set[str] = set()
        async with asyncio.timeout(20):
            while "after" not in names:
                change = await anext(changes)
                found = change.objects if isinstance(change, Listed) else [change.value]
                names |= {one["metadata"]["name"] for one in found}


async def test_follow_says_once_that_the_server_is_away_and_once_that_it_is_back(
    server: ApiServer, tmp_path: Path
) -> None:
    said: list[str] = []
    server.troubles.append(Trouble(lambda method, path: True, 503, times=3))
    async with client(server, tmp_path) as api, aclosing(follow(api, POD, tell=said.append)) as changes:
        await _until(changes, Listed)
    assert len(said) == 2
    assert "not followed for now" in said[0]
    assert "followed again" in said[1]
