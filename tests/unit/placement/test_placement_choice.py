"""Which cards a request gets: by policy, by strategy, by name."""

from dataclasses import replace

import pytest

from native_sched.daemon.node.config import NodeConfig
from oci_specs.request import Qos, Request
from oci_specs.vocabulary import FIXED_SHARE
from placement.place import CardState, place
from placement.rules import Strategy
from tests.cards import CONFIG, card, indices, line, request, tenant

# Policies.


def test_absent_policy_adopts_the_card_s_else_the_node_s() -> None:
    config = NodeConfig(policy="native-burst-share")
    assert place(request(1024), (card(0),), config).policy == "native-burst-share"
    assert place(request(1024), (card(0, tenant(), policy=FIXED_SHARE),), config).policy == FIXED_SHARE
    assert place(request(1024, policy=FIXED_SHARE), (card(0),), config).policy == FIXED_SHARE


def test_policy_conflict_names_the_tenant_that_set_it() -> None:
    busy = card(0, tenant(), policy=FIXED_SHARE, owner="web-1")
    asked = request(1024, policy="guaranteed-burst-share")
    assert line(asked, busy) == (
        'mgpu: policy guaranteed-burst-share asked, but GPU 0 runs fixed-share, set by "web-1"; '
        "ask for fixed-share, leave the policy out, or wait until that container ends"
    )
    assert indices(place(asked, (busy, card(1)), CONFIG)) == [1]


def test_several_cards_run_one_policy() -> None:
    cards = (
        card(0, tenant(), policy=FIXED_SHARE, owner="a"),
        card(1, tenant(), policy="native-burst-share", owner="b"),
        card(2, tenant(), policy="native-burst-share", owner="b"),
    )
    placement = place(request(2048, count=2), cards, CONFIG)
    assert (indices(placement), placement.policy) == ([1, 2], "native-burst-share")
    assert line(request(2048, count=2), *cards[:2]) == (
        'mgpu: 2 GPUs asked, which must run one policy, but GPU 0 runs fixed-share, set by "a", '
        'GPU 1 runs native-burst-share, set by "b"; '
        "ask for fewer GPUs, or wait until one of these containers ends"
    )


# Which cards.

ONLINE = card(0, tenant("online"))
OFFLINE = card(1, tenant("offline", memory_mib=8192))
EMPTY = card(2)

STRATEGIES = [
    ("default", "online", [EMPTY, OFFLINE, ONLINE]),
    ("default", "offline", [ONLINE, OFFLINE, EMPTY]),
    ("binpack", "online", [OFFLINE, ONLINE, EMPTY]),
    ("binpack", "offline", [OFFLINE, ONLINE, EMPTY]),
    ("spread", "online", [EMPTY, ONLINE, OFFLINE]),
    ("spread", "offline", [EMPTY, ONLINE, OFFLINE]),
    ("separate", "online", [EMPTY, ONLINE, OFFLINE]),
    ("separate", "offline", [OFFLINE, EMPTY, ONLINE]),
]


@pytest.mark.parametrize(("placement", "qos", "order"), STRATEGIES)
def test_strategy(placement: Strategy, qos: Qos, order: list[CardState]) -> None:
    config = NodeConfig(placement=placement)
    left = [ONLINE, OFFLINE, EMPTY]
    chosen = []
    while left:
        (index,) = indices(place(request(1024, qos=qos), left, config))
        chosen.append(index)
        left = [one for one in left if one.index != index]
    assert chosen == [one.index for one in order]


@pytest.mark.parametrize("placement", ["default", "binpack", "spread", "separate"])
def test_ties_go_to_the_lower_index_whatever_the_order_of_the_cards(placement: Strategy) -> None:
    config = NodeConfig(placement=placement)
    cards = [card(index) for index in (3, 1, 0, 2)]
    for qos in ("online", "offline"):
        assert indices(place(request(2048, qos=qos, count=2), cards, config)) == [0, 1]


NAMES = [
    (("1",), [1]),
    (("GPU-00000001-aaaa",), [1]),
    (("gpu-00000002",), [2]),
    (("2", "GPU-00000001"), [1, 2]),
]


@pytest.mark.parametrize(("names", "chosen"), NAMES)
def test_named_cards(names: tuple[str, ...], chosen: list[int]) -> None:
    cards = [card(0), card(1), card(2)]
    count = len(names)
    assert indices(place(request(2048 * count, count=count, candidates=names), cards, CONFIG)) == chosen
    uuids = tuple(cards[index].uuid for index in chosen)
    assert indices(place(request(2048 * count, count=count, uuids=uuids), cards, CONFIG)) == chosen


def test_placement_chooses_among_the_candidates() -> None:
    cards = [card(0), card(1, tenant()), card(2)]
    assert indices(place(request(1024, candidates=("1", "2")), cards, CONFIG)) == [2]


NAMING_FAULTS = [
    (
        request(1024, candidates=("7",)),
        'mgpu: this node has no GPU "7"; its GPUs are: 0 (GPU-00000000-aaaa), 1 (GPU-00000001-aaaa)',
    ),
    (
        request(1024, uuids=("MIG-1",)),
        'mgpu: this node has no GPU "MIG-1"; its GPUs are: 0 (GPU-00000000-aaaa), 1 (GPU-00000001-aaaa)',
    ),
    (
        request(1024, candidates=("0:1",)),
        'mgpu: this node has no GPU "0:1"; its GPUs are: 0 (GPU-00000000-aaaa), 1 (GPU-00000001-aaaa)',
    ),
    (
        request(1024, uuids=("GPU-0",)),
        'mgpu: "GPU-0" is the beginning of 2 GPUs\' UUIDs; '
        "write more of the UUID: GPU-00000000-aaaa or GPU-00000001-aaaa",
    ),
    (
        request(1024, uuids=("GPU-00000000",), candidates=("1",)),
        "mgpu: 1 GPU asked, and NVIDIA_VISIBLE_DEVICES leaves 0 of 2; name others",
    ),
    (
        request(2048, count=2, candidates=("1",)),
        "mgpu: 2 GPUs asked, and NVIDIA_VISIBLE_DEVICES leaves 1 of 2; ask for at most 1, or name others",
    ),
    (
        request(2048, count=2, uuids=("GPU-00000001", "GPU-00000001-aaaa")),
        "mgpu: 2 GPUs asked, and the UUIDs leave 1 of 2; ask for at most 1, or name others",
    ),
    (request(3072, count=3), "mgpu: 3 GPUs asked, and this node has 2; ask for at most 2"),
]


@pytest.mark.parametrize(("asked", "expected"), NAMING_FAULTS)
def test_names_and_numbers_that_do_not_fit_the_node(asked: Request, expected: str) -> None:
    assert line(asked, card(0), card(1)) == expected


def test_placement_refuses_on_a_node_without_cards() -> None:
    assert line(request(1024)) == "mgpu: 1 GPU asked, and this node has none; run it on a node with GPUs"
    assert (
        line(request(count=None)) == "mgpu: GPUs asked, and this node has none; run it on a node with GPUs"
    )


# MIG instances.


def test_container_gets_one_mig_instance_of_a_gpu() -> None:
    instances = tuple(replace(card(index), minor=index // 2, uuid=f"MIG-{index}") for index in range(4))
    assert indices(place(request(2048, count=2), instances, CONFIG)) == [0, 2]
    assert indices(place(request(2048, count=2, uuids=("MIG-1", "MIG-2")), instances, CONFIG)) == [1, 2]
    assert line(request(4096, count=3), *instances) == (
        "mgpu: 3 GPUs asked, and those that fit are MIG instances of 2 GPUs: a container gets at most one of each; "
        "ask for at most 2, or for instances of other GPUs"
    )
    assert line(request(2048, count=2, uuids=("MIG-0", "MIG-1")), *instances).startswith(
        "mgpu: 2 GPUs asked, and those that fit are MIG instances of 1 GPU: "
    )


# What a cluster's scheduler chose.


def test_placed_cards_are_the_only_candidates() -> None:
    cards = (card(0), card(1), card(2, tenant()))
    placed = replace(request(1024), placed=(cards[2].uuid,))
    assert indices(place(placed, cards, CONFIG)) == [2]


def test_placement_that_fails_says_where_and_to_place_anew() -> None:
    cards = (card(0, tenant(memory_mib=16000)), card(1))
    wait = "delete the pod, so that it is placed anew"
    full = replace(request(1024), placed=(cards[0].uuid,))
    assert line(full, *cards) == (
        "mgpu: mgpu.dev/placement names GPU-00000000-aaaa, and there 1024 MiB asked, but the most that is free "
        f"is 160 MiB, on GPU 0; {wait}"
    )
    unknown = replace(request(1024), placed=("GPU-9",))
    assert line(unknown, *cards) == (
        'mgpu: mgpu.dev/placement names GPU-9, and there this node has no GPU "GPU-9"; ' + wait
    )
    few = replace(request(2048, count=2), placed=(cards[1].uuid,))
    assert line(few, *cards) == (
        "mgpu: mgpu.dev/placement names GPU-00000001-aaaa, and there 2 GPUs asked, and mgpu.dev/placement leaves "
        f"1 of 2; {wait}"
    )
    other = replace(request(2048, count=1, uuids=(cards[1].uuid,)), placed=(cards[0].uuid,))
    assert line(other, *cards).startswith(
        "mgpu: mgpu.dev/placement names GPU-00000000-aaaa, and there 1 GPU asked"
    )
