"""What a node offers under which name, and the annotation that says what it has."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.resources import inventory, table
from cluster.resources.inventory import Inventory, Lending
from native_sched.daemon.node.config import NodeConfig
from oci_specs import parse, vocabulary
from oci_specs.refusal import Refusal
from oci_specs.request import Memory
from tests.cluster.inventories import RULES, V100S, node


def amounts(of: Inventory) -> dict[str, int]:
    return {each.name: each.amount(of) for each in table.offered(of, opt_in=True)}


def test_amounts_of_two_v100s_are_those_that_the_vendors_plugins_report() -> None:
    """ACK counts 15 GiB units of such a card; TKE whole GB, gpu-manager blocks of 256 MiB."""
    assert amounts(V100S) == {
        "mgpu.dev/memory-64mib": 2 * (252 + 16),
        "mgpu.dev/memory-spare-mib": 2 * 16 * 63,
        "vke.volcengine.com/mgpu-memory": 32320,
        "vke.volcengine.com/mgpu-core": 200,
        "vke.volcengine.com/reclaimed-mgpu-core": 200,
        "tke.cloud.tencent.com/qgpu-memory": 30,
        "tke.cloud.tencent.com/qgpu-core": 200,
        "tke.cloud.tencent.com/qgpu-core-greedy": 200,
        "aliyun.com/gpu-mem": 30,
        "tencent.com/vcuda-memory": 126,
        "tencent.com/vcuda-core": 200,
        "mgpu.dev/memory-mib": 32320,
        "mgpu.dev/memory-percent": 200,
        "mgpu.dev/reclaimable-memory-mib": 0,
        "mgpu.dev/core": 200,
        "mgpu.dev/gpus": 32,
        "nvidia.com/gpu": 32,
        "nvidia.com/gpumem": 32320,
        "nvidia.com/gpumem-percentage": 200,
        "nvidia.com/gpucores": 200,
        "nvidia.com/priority": 32,
    }


def lending(online_mib: int, kept_mib: int, lent_mib: int) -> Inventory:
    """Two cards, the first of which is lent from."""
    lent = Lending(online_mib=online_mib, kept_mib=kept_mib, lent_mib=lent_mib)
    return replace(V100S, cards=(replace(V100S.cards[0], lending=lent), V100S.cards[1]))


@pytest.mark.parametrize(
    ("lent", "mib"),
    [
        (lending(0, 0, 0), 16160),
        (lending(4000, 0, 0), 12160),
        (lending(4000, 2000, 3000), 10160),
        (lending(16000, 0, 8000), 8000),
        (lending(16160, 160, 0), 0),
    ],
)
def test_reclaimable_is_what_online_does_not_use_and_never_less_than_what_was_granted(
    lent: Inventory, mib: int
) -> None:
    assert amounts(lent)["mgpu.dev/reclaimable-memory-mib"] == mib
    assert amounts(lent)["mgpu.dev/memory-mib"] == 32320
    assert amounts(lent)["mgpu.dev/memory-64mib"] == 3 * 252 + 2 * 16, "what is lent is handed out twice"
    assert inventory.read(lent.to_json()) == lent


def test_share_of_a_lost_card_is_not_offered() -> None:
    lost = replace(V100S, cards=(V100S.cards[0], replace(V100S.cards[1], healthy=False)))
    assert amounts(lost) == amounts(node(16160))


def test_hamis_names_are_offered_where_the_operator_says_so() -> None:
    assert not [each for each in table.offered(V100S) if each.name.startswith("nvidia.com/")]


def test_aliyun_memory_in_mib_is_counted_as_all_mib_are() -> None:
    [found] = [each for each in table.offered(node(16160, aliyun_unit="mib")) if each.name == table.GIB_KEY]
    assert (found.by, found.amount(V100S)) == ("status", 32320)


def test_every_annotation_is_a_key_that_mgpud_reads() -> None:
    keys = {key.name for key in vocabulary.KEYS if key.source == vocabulary.ANNOTATION}
    for each in table.offered(V100S):
        assert (each.annotation in keys) == (each.by == "kubelet")


def test_every_amount_is_a_resource() -> None:
    """Or no quota counts it. Numbers of cards have mgpu.dev/gpus."""
    amounts = {
        key.name
        for key in vocabulary.KEYS
        if key.source == vocabulary.ANNOTATION and key.meaning in (vocabulary.MEMORY, vocabulary.CORE)
    }
    assert amounts - {each.name for each in table.RESOURCES} == set(), "cluster/resources/table.py"


@given(st.integers(256, 2_000_000))
def test_blocks_and_spare_are_read_as_the_same_memory(mib: int) -> None:
    blocks, spare = table.blocks_of(mib)
    annotations = {vocabulary.BLOCKS: str(blocks)}
    if spare:
        annotations[vocabulary.SPARE] = str(spare)
    request = parse.request(annotations, {}, NodeConfig())
    assert request is not None
    assert request.memory == Memory(mib=mib)


@given(st.lists(st.integers(4096, 200_000), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_requests_that_fit_the_cards_fit_the_blocks(sizes: list[int], random: Any) -> None:
    """Blocks and spare never run out before memory and places do."""
    blocks = spare = 0
    for left in sizes:
        for _ in range(RULES.max_containers_per_card):
            if left < 256:
                break
            mib = random.randint(256, min(left, 20_000))
            left -= mib
            more, less = table.blocks_of(mib)
            blocks, spare = blocks + more, spare + less
    offered = amounts(node(*sizes))
    assert blocks <= offered[vocabulary.BLOCKS]
    assert spare <= offered[vocabulary.SPARE]


def test_node_of_many_instances_has_spare_for_as_many_containers_as_it_can_have_pods() -> None:
    """56 MIG instances have 896 places; kubelet has 110 pods unless it is told otherwise."""
    assert amounts(node(*[9856] * 56))[vocabulary.SPARE] == 256 * 63


def test_annotation_is_read_as_it_was_written() -> None:
    assert inventory.read(V100S.to_json()) == V100S
    chosen = replace(V100S, chosen={"shop/web-0": {"main": ("GPU-0", "GPU-1")}})
    assert inventory.read(chosen.to_json()) == chosen


def changed(**members: Any) -> str:
    return json.dumps({**json.loads(V100S.to_json()), **members})


CARD = json.loads(V100S.to_json())["cards"][0]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ("[]", 'its version is "[]", not 1'),
        (changed(version=2), 'its version is "2", not 1'),
        (changed(cards=None), "it has no list of GPUs"),
        (changed(cards=[1]), "a part of it is no GPU"),
        (changed(cards=[{**CARD, "memory_mib": "1"}]), 'memory_mib is "1"'),
        (changed(cards=[{**CARD, "index": True}]), 'index is "True"'),
        (changed(cards=[{**CARD, "memory_mib": 0}]), "a GPU of it has no memory"),
        (changed(cards=[{**CARD, "lending": {"online_mib": 1}}]), "a lending of it is not whole"),
        (
            changed(cards=[{**CARD, "lending": {"online_mib": 1, "kept_mib": -1, "lent_mib": 0}}]),
            "a GPU of it lends less than nothing",
        ),
        (changed(cards=[{"index": 0}]), "a GPU of it is not whole"),
        (changed(cards=[CARD, CARD]), "two of its GPUs have one index or one UUID"),
        (changed(rules={}), "a rules of it is not whole"),
        (
            changed(rules={**json.loads(V100S.to_json())["rules"], "max_containers_per_card": 0}),
            "no container",
        ),
        (changed(chosen=["shop/web-0"]), "what mgpud chose for pods"),
        (changed(chosen={"shop/web-0": {"main": "GPU-0"}}), "what mgpud chose for pods"),
    ],
)
def test_text_that_is_no_inventory_is_refused_in_one_line(text: str, what: str) -> None:
    with pytest.raises(Refusal) as refused:
        inventory.read(text)
    assert what in refused.value.message
    assert "\n" not in refused.value.line()


def test_members_of_a_newer_node_are_passed_over() -> None:
    assert inventory.read(changed(cards=[{**CARD, "numa": 1}], more=1)).cards == V100S.cards[:1]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@given(
    st.sampled_from(["version", "rules", "cards", "chosen"]),
    JSON,
    st.none() | st.tuples(st.sampled_from(sorted(CARD)), JSON),
)
def test_any_text_is_an_inventory_or_refused_in_one_line(
    member: str, value: object, in_card: tuple[str, object] | None
) -> None:
    members = {member: value} if in_card is None else {"cards": [{**CARD, in_card[0]: in_card[1]}]}
    found = refused = None
    try:
        found = inventory.read(changed(**members))
    except Refusal as refusal:
        refused = refusal
    if found is None:
        assert refused is not None
        assert "\n" not in refused.line()
    else:
        assert inventory.read(found.to_json()) == found
        assert all(each.amount(found) >= 0 for each in table.offered(found, opt_in=True))
