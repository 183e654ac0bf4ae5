"""The scheduler's view of a cluster's nodes as a whole."""

from collections.abc import Iterable
from typing import Any

import pytest

from cluster.api.follow import Deleted, Listed
from cluster.resources.inventory import ANNOTATION, Inventory
from cluster.scheduler import reading
from cluster.scheduler.reading import Units
from cluster.scheduler.state import State
from oci_specs.request import Memory, Request
from tests.cluster import inventories
from tests.cluster.extender_support import node, pod
from tests.cluster.scheduler_support import state


def asked(known: State) -> Request:
    value: dict[str, Any] = pod("half")
    value["spec"]["containers"][0]["resources"]["limits"] = {"aliyun.com/gpu-mem": "8000"}
    return known.asked(value).pod.containers[0].request


def test_units_of_a_cluster_are_found_once_for_a_whole_list(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []
    units_of = reading.units_of

    def counted(all_: Iterable[Inventory]) -> Units:
        found.append(1)
        return units_of(all_)

    monkeypatch.setattr(reading, "units_of", counted)
    known = state()
    known.change_nodes(Listed([node(f"n{number}", 16_160) for number in range(50)]))
    asked(known)
    asked(known)
    assert found == [1]


def test_units_follow_when_a_node_leaves() -> None:
    known = state()
    large = node("large", 40_960)
    large["metadata"]["annotations"] = {ANNOTATION: inventories.node(40_960, aliyun_unit="mib").to_json()}
    known.change_nodes(Listed([large, node("small", 16_000)]))
    before = asked(known)
    known.change_nodes(Deleted(large))
    after = asked(known)
    assert (before.memory, after.memory) == (Memory(mib=8_000), Memory(units=8_000))


@pytest.mark.parametrize(("runs", "heard"), [(True, ["one"]), (False, [])])
def test_pod_that_is_gone_counts_as_ended_where_it_had_a_node(
    monkeypatch: pytest.MonkeyPatch, *, runs: bool, heard: list[str]
) -> None:
    known = state()
    ended: list[str] = []
    monkeypatch.setattr(known.scheduler, "ended", lambda gone: ended.append(gone.name))
    known.change_nodes(Listed([node("n0", 16_160)]))
    one: dict[str, Any] = pod("one")
    if runs:
        one["spec"]["nodeName"] = "n0"
    known.change_pods(Listed([one]), 0)
    known.change_pods(Deleted(one), 1)
    known.change_pods(Deleted(one), 2)
    assert ended == heard
