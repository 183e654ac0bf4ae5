"""HAMi's manifests as they are: admitted, read, and placed on the cards that they ask for."""

from dataclasses import replace
from typing import Any

import pytest
import yaml

from cluster.admission import change, hami, names, refuse, warnings
from cluster.admission.names import Settings
from cluster.admission.shapes import POD
from cluster.api.follow import Listed
from cluster.resources import wanted
from cluster.resources.inventory import Inventory
from cluster.resources.table import RESOURCES
from cluster.scheduler import reading
from cluster.scheduler.pods import Pod
from cluster.scheduler.reading import Units
from cluster.scheduler.scheduler import Scheduler
from oci_specs.request import Qos
from tests.cluster.admission_support import manifest, patched
from tests.cluster.extender_support import node
from tests.cluster.scheduler_support import inventory, state
from tests.support.places import REPOSITORY

CASES: list[dict[str, Any]] = yaml.safe_load(
    (REPOSITORY / "tests" / "cluster" / "hami_cases.yaml").read_text()
)
HAMI = Settings(hami=True)
V100_MIB, A10_MIB = 16_160, 22_731
GPU = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000}
PAGE = (REPOSITORY / "docs" / "hami.md").read_text()


def admitted(row: dict[str, Any]) -> dict[str, Any]:
    limits, env = row.get("limits", GPU), row.get("env", {})
    pod = manifest({"containers": [{"name": "main", "limits": limits, "env": env}], **row})
    made: dict[str, Any] = patched(pod, change.patch(POD, pod, {}, HAMI))
    assert change.patch(POD, made, {}, HAMI) == [], "it is changed once"
    return made


def read(row: dict[str, Any], uid: str = "p") -> Pod:
    made = admitted(row)
    assert refuse.refusal(POD, made, {}, HAMI) is None
    found = reading.read_pod(made, Units())
    assert found.refusal is None
    return replace(found.pod, uid=uid, name=uid)


def refused(row: dict[str, Any]) -> str:
    found = refuse.refusal(POD, admitted(row), {}, HAMI)
    return "" if found is None else found.line()


def cluster(**nodes: Inventory) -> Scheduler:
    there = Scheduler()
    for name, cards in nodes.items():
        there.put_node(name, cards, 64_000, 1 << 20)
    return there


def v100s(name: str, cards: int = 4) -> Inventory:
    return inventory(name, cards, memory_mib=V100_MIB, model="Tesla V100-SXM2-16GB")


def a10s(name: str, cards: int = 2) -> Inventory:
    return inventory(name, cards, memory_mib=A10_MIB, model="NVIDIA A10")


@pytest.mark.parametrize("row", CASES, ids=lambda row: str(row["case"]))
def test_example_has_of_each_gpu_what_hami_gives_it(row: dict[str, Any]) -> None:
    made = admitted(row)
    limits = made["spec"]["containers"][0]["resources"]["limits"]
    ours = {name: str(number) for name, number in row["ours"].items()}
    assert limits == {**row["limits"], **ours}
    assert (made["spec"]["runtimeClassName"], made["spec"]["schedulerName"]) == (
        names.RUNTIME_CLASS,
        names.SCHEDULER,
    )
    there = cluster(n1=v100s("n1"))
    pod = read(row)
    assert there.filter(pod, ["n1"]).fits == ["n1"]
    there.put_pod(pod, "n1", there.choose(pod, "n1"))
    tenants = [tenant for card in there.occupancy.nodes["n1"].cards for tenant in card.tenants]
    assert [[tenant.memory_mib, tenant.core_percent] for tenant in tenants] == row["has"]
    qos: Qos = row.get("class", "online")
    assert {tenant.qos for tenant in tenants} == {qos}


def test_percentage_is_of_each_card_where_the_pod_lands() -> None:
    row = {"limits": {"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 50}}
    for cards, mib in ((v100s("n"), 8080), (a10s("n"), 11365)):
        there = cluster(n=cards)
        pod = read(row)
        there.put_pod(pod, "n", there.choose(pod, "n"))
        assert [card.free_mib for card in there.occupancy.nodes["n"].cards if card.tenants] == [
            cards.cards[0].memory_mib - mib
        ]


def test_names_of_hami_are_left_alone_where_they_are_not_ours() -> None:
    pod = manifest({"limits": {"nvidia.com/gpu": 1, "nvidia.com/gpucores": 30}})
    assert change.patch(POD, pod, {}, Settings()) == []
    assert reading.read_pod(pod, Units()).pod.containers == ()


@pytest.mark.parametrize(
    ("annotations", "left"),
    [
        ({}, {"v", "a"}),
        ({"nvidia.com/use-gputype": "A10,A100"}, {"a"}),
        ({"nvidia.com/use-gputype": "v100"}, {"v"}),
        ({"nvidia.com/use-gputype": "NVIDIA-NVIDIA A10"}, {"a"}),
        ({"nvidia.com/nouse-gputype": "1080, V100"}, {"a"}),
        ({"nvidia.com/use-gputype": ""}, {"v", "a"}),
        ({"nvidia.com/use-gpuuuid": "GPU-v-3,GPU-elsewhere"}, {"v"}),
        ({"nvidia.com/nouse-gpuuuid": "GPU-a-0,GPU-a-1"}, {"v"}),
        ({"nvidia.com/use-gputype": "H100"}, set()),
        ({"nvidia.com/nouse-gputype": ",".join(["H100"] * 64)}, {"v", "a"}),
    ],
)
def test_annotations_leave_nodes(annotations: dict[str, str], left: set[str]) -> None:
    there = cluster(v=v100s("v"), a=a10s("a"))
    found = there.filter(read({"annotations": annotations}), ["v", "a"])
    assert set(found.fits) == left
    if not left:
        assert found.refused["v"] == "node v: the pod's annotations leave none of its 4 GPUs"


def placed(there: Scheduler, row: dict[str, Any], node: str, uid: str = "p") -> tuple[str, ...]:
    pod = read(row, uid)
    found = there.choose(pod, node)
    there.put_pod(pod, node, found)
    return found["main"]


@pytest.mark.parametrize("text", [",".join(["H100"] * 65), "GPU" * 2000])
def test_list_that_is_too_long_leaves_no_card(text: str) -> None:
    """Where admission has not seen the pod."""
    there = cluster(v=v100s("v")).occupancy.nodes["v"]
    assert wanted.read({"nvidia.com/nouse-gputype": text}).of(there.cards) == []


def test_cards_of_one_node_are_chosen_by_uuid() -> None:
    only = {"annotations": {"nvidia.com/use-gpuuuid": "GPU-v-2"}}
    there = cluster(v=v100s("v"))
    assert placed(there, only, "v") == ("GPU-v-2",)
    rest = {"annotations": {"nvidia.com/nouse-gpuuuid": "GPU-v-0,GPU-v-2"}}
    assert placed(there, rest, "v", "q")[0] in ("GPU-v-1", "GPU-v-3")
    large = {**only, "limits": {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 14000}}
    [why] = there.filter(read(large, "r"), ["v"]).refused.values()
    assert why.endswith("on GPU 2 (3 left out by the pod's annotations)")


def test_policies_of_a_pod_say_which_node_and_which_card() -> None:
    there = cluster(a=v100s("a"), b=v100s("b"))
    placed(there, {}, "a", "first")
    by_node = {
        policy: there.best(read({"annotations": {"hami.io/node-scheduler-policy": policy}}), ["a", "b"])
        for policy in ("binpack", "spread")
    }
    assert by_node == {"binpack": "a", "spread": "b"}
    [taken] = [card.uuid for card in there.occupancy.nodes["a"].cards if card.tenants]
    cards = {
        policy: there.choose(read({"annotations": {"hami.io/gpu-scheduler-policy": policy}}), "a")["main"]
        for policy in ("binpack", "spread", "numa,spread", "mutex")
    }
    assert cards["binpack"] == (taken,)
    assert taken not in cards["spread"] + cards["numa,spread"] + cards["mutex"]


def test_idle_cards_alone_are_taken_where_the_pod_says_so() -> None:
    there = cluster(a=v100s("a", 1))
    placed(there, {}, "a", "first")
    assert there.filter(read({}), ["a"]).fits == ["a"]
    assert there.filter(read({"annotations": {"hami.io/gpu-scheduler-policy": "mutex"}}), ["a"]).fits == []


def test_kinds_that_name_models_are_learned_as_such() -> None:
    known = state()
    nodes = [node("v", V100_MIB, model="Tesla V100"), node("a", A10_MIB, model="NVIDIA A10")]
    known.change_nodes(Listed(nodes))
    found = known.asked(admitted({"annotations": {"nvidia.com/use-gputype": "A10"}}))
    assert found.pod.models == frozenset({"NVIDIA A10"})


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (
            {"limits": {**GPU, "mgpu.dev/memory-mib": 4000}},
            'mgpu.dev/memory-mib 4000 and HAMi\'s names, which come to 3000 of it, limits of container "main", '
            "disagree; leave mgpu.dev/memory-mib out: mgpu adds it",
        ),
        (
            {"limits": {"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 120}},
            'nvidia.com/gpumem-percentage is "120"; allowed: 0 to 100',
        ),
        (
            {"limits": {**GPU, "nvidia.com/priority": 2}},
            'nvidia.com/priority is "2"; allowed: 0 (online) or 1 (offline)',
        ),
        (
            {
                "containers": [
                    {"name": name, "limits": {**GPU, "nvidia.com/priority": priority}}
                    for name, priority in (("a", 0), ("b", 1))
                ]
            },
            "nvidia.com/priority is 0 and 1 in containers of one pod, and a pod has one class; "
            "let all say the same, or make two pods",
        ),
        (
            {"annotations": {"nvidia.com/vgpu-mode": "mig"}},
            'nvidia.com/vgpu-mode is "mig", and mgpu makes no MIG instances; leave it out for a share of a GPU, '
            "or of an instance that the node's operator has made",
        ),
        (
            {"annotations": {"hami.io/node-scheduler-policy": "packed"}},
            'hami.io/node-scheduler-policy is "packed"; allowed: binpack or spread',
        ),
        (
            {"annotations": {"nvidia.com/use-gpuuuid": "," * 64}},
            "nvidia.com/use-gpuuuid has more than 64 words or 4096 characters; name fewer",
        ),
        ({"annotations": {"nvidia.com/vgpu-mode": "hami-core,mig"}}, ""),
        ({"annotations": {"nvidia.com/vgpu-mode": "mps"}}, ""),
    ],
)
def test_what_cannot_be_kept_is_refused_in_one_line(row: dict[str, Any], says: str) -> None:
    assert refused(row) == (f"mgpu: {says}" if says else "")


def test_wishes_without_effect_are_said() -> None:
    row = {
        "annotations": {
            "nvidia.com/numa-bind": "true",
            "hami.io/gpu-scheduler-policy": "topology-aware",
            "hami.io/device-scoring-weights": "slot=1",
        }
    }
    assert warnings.warnings(HAMI, admitted(row)) == [
        "mgpu: nvidia.com/numa-bind has no effect: mgpu knows no NUMA nodes of GPUs",
        "mgpu: hami.io/device-scoring-weights has no effect: mgpu scores GPUs by one measure",
        "mgpu: hami.io/gpu-scheduler-policy topology-aware has no effect: mgpu knows no links between GPUs",
    ]


def test_page_has_every_name() -> None:
    chosen = (
        wanted.USE_MODELS,
        wanted.NO_MODELS,
        wanted.USE_UUIDS,
        wanted.NO_UUIDS,
        wanted.NODES,
        wanted.CARDS,
    )
    ignored = ("nvidia.com/numa-bind", "hami.io/device-scoring-weights")
    for name in (*names.HAMI, *chosen, *ignored, hami.MODE, hami.PRIORITY_VARIABLE):
        assert f"`{name}" in PAGE, name
    assert {each.name for each in RESOURCES if each.opt_in} == set(names.HAMI)
