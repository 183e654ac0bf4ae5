"""How much of a card a request is, and whether the card has it."""

from dataclasses import replace

import pytest

from native_sched.daemon.node.config import NodeConfig
from oci_specs.vocabulary import FIXED_SHARE
from placement.place import place
from tests.cards import CONFIG, V100_MIB, card, from_keys, given_mib, indices, line, request, tenant

# How much memory a request is.


def test_ack_gib_units_over_two_cards() -> None:
    placement = place(from_keys(gpu_mem="8", gpu_count="2"), (card(0), card(1)), CONFIG)
    assert (indices(placement), given_mib(placement)) == ([0, 1], [4309, 4309])
    assert placement.policy == "fixed-share"
    assert [share.core_percent for share in placement.cards] == [None, None]


def test_units_depend_on_the_card_and_mib_do_not() -> None:
    cards = (card(0), card(1, memory_mib=81920))
    assert given_mib(place(from_keys(gpu_mem="8", gpu_count="2"), cards, CONFIG)) == [4309, 4096]
    assert given_mib(place(request(8192, count=2), cards, CONFIG)) == [4096, 4096]


def test_memory_in_mib_is_exact() -> None:
    assert given_mib(place(from_keys(memory="4096"), (card(0),), CONFIG)) == [4096]


def test_whole_cards_of_core_clamp_the_memory_beside_them() -> None:
    keys = from_keys(vcuda_core="100", vcuda_memory="64")
    assert given_mib(place(keys, (card(0),), CONFIG)) == [V100_MIB]
    assert given_mib(place(keys, (card(0, memory_mib=81920),), CONFIG)) == [16384]
    two = from_keys(vcuda_core="200", vcuda_memory="256")
    placement = place(two, (card(0), card(1)), CONFIG)
    assert given_mib(placement) == [V100_MIB, V100_MIB]
    assert [share.core_percent for share in placement.cards] == [100, 100]


def test_less_than_whole_cards_does_not_clamp() -> None:
    assert "16384 MiB asked, but the largest GPU has 16160 MiB" in line(request(16384, 50), card(0))


def test_core_alone_is_the_same_share_of_memory() -> None:
    assert given_mib(place(request(core=30), (card(0),), CONFIG)) == [4848]
    assert given_mib(place(request(core=100, count=2), (card(0), card(1)), CONFIG)) == [8080, 8080]
    assert given_mib(place(request(core=100), (card(0),), CONFIG)) == [V100_MIB]


def test_whole_card_request_needs_free_cards() -> None:
    placement = place(request(), (card(0, tenant(memory_mib=256)), card(1)), CONFIG)
    assert (indices(placement), given_mib(placement)) == ([1], [V100_MIB])
    assert placement.cards[0].core_percent == 100
    assert indices(place(request(count=None), (card(0), card(1)), CONFIG)) == [0, 1]
    assert line(request(), card(0, tenant(memory_mib=256))) == (
        "mgpu: a whole GPU asked, but GPU 0 has other containers; "
        "ask for memory or core to share a GPU, or wait until they end"
    )
    assert line(request(count=None), card(0, tenant()), card(1)) == (
        "mgpu: a whole GPU on each of 2 GPUs asked, but 1 of 2 GPUs has room, and elsewhere GPU 0 has other "
        "containers; ask for memory or core to share a GPU, or wait until they end"
    )


# What a card holds.


def test_last_mib_of_a_card() -> None:
    cards = (card(0, tenant(memory_mib=12000)), card(1, tenant(memory_mib=13000)))
    assert indices(place(request(4160), cards, CONFIG)) == [0]
    assert line(request(4161), *cards) == (
        "mgpu: 4161 MiB asked, but the most that is free is 4160 MiB, on GPU 0; "
        "ask for at most 4160 MiB a GPU, or wait until a container ends"
    )


def test_refusal_advises_no_less_than_the_least() -> None:
    assert line(request(4096), card(0, tenant(memory_mib=16000))) == (
        "mgpu: 4096 MiB asked, but the most that is free is 160 MiB, on GPU 0; wait until a container ends"
    )


def test_refusal_says_that_1_of_2_cards_has_room() -> None:
    assert line(request(8192, count=2), card(0), card(1, tenant(memory_mib=14000))) == (
        "mgpu: 4096 MiB on each of 2 GPUs asked, but 1 of 2 GPUs has room, and elsewhere the most that is free is "
        "2160 MiB, on GPU 1; ask for at most 2160 MiB a GPU, or wait until a container ends"
    )


def test_core_is_counted_for_each_class() -> None:
    full = card(0, tenant(core=70, memory_mib=1024), tenant("offline", core=100, memory_mib=1024))
    assert indices(place(request(1024, 30), (full,), CONFIG)) == [0]
    assert line(request(1024, 31), full) == (
        "mgpu: core 31 asked, but the most that online containers leave is 30 percent, on GPU 0; "
        "ask for at most core 30 a GPU, or wait until a container ends"
    )
    assert line(request(1024, 1, qos="offline"), full) == (
        "mgpu: core 1 asked, but the most that offline containers leave is 0 percent, on GPU 0; "
        "wait until a container ends"
    )


def test_memory_alone_under_fixed_share_needs_one_percent_of_its_class() -> None:
    full = card(0, tenant(core=100, memory_mib=1024), policy=FIXED_SHARE, owner="other")
    assert line(request(1024), full) == (
        "mgpu: a part of what online containers leave asked, but the most that they leave is 0 percent, on GPU 0; "
        "wait until a container ends"
    )
    assert indices(place(request(1024, qos="offline"), (full,), CONFIG)) == [0]
    nearly = card(0, tenant(core=99, memory_mib=1024), policy=FIXED_SHARE)
    assert place(request(1024), (nearly,), CONFIG).cards[0].core_percent is None
    shared = card(0, tenant(core=99, memory_mib=1024), tenant(memory_mib=1024), policy=FIXED_SHARE)
    assert "0 percent" in line(request(1024), shared)


@pytest.mark.parametrize("policy", ["guaranteed-burst-share", "native-burst-share"])
def test_memory_alone_needs_no_core_under_the_burst_policies(policy: str) -> None:
    full = card(0, tenant(core=100, memory_mib=1024), policy=policy)
    placement = place(request(1024), (full,), CONFIG)
    assert (placement.policy, placement.cards[0].core_percent) == (policy, None)


def test_fixed_share_quota_leaves_room_for_containers_without_quota() -> None:
    three = tuple(tenant(memory_mib=1024) for _ in range(3))
    assert indices(place(request(1024, 97), (card(0, *three, policy=FIXED_SHARE),), CONFIG)) == [0]
    assert "leave is 97 percent" in line(request(1024, 98), card(0, *three, policy=FIXED_SHARE))
    burst = card(0, *three, policy="guaranteed-burst-share")
    assert indices(place(request(1024, 100), (burst,), CONFIG)) == [0]


def test_sixteen_containers_a_card() -> None:
    full = card(0, *(tenant(memory_mib=256) for _ in range(16)))
    assert line(request(256), full) == (
        "mgpu: a place asked, but GPU 0 has 16 containers, which is the most; wait until a container ends"
    )
    assert indices(place(request(256), (replace(full, tenants=full.tenants[1:]),), CONFIG)) == [0]
    few = NodeConfig(max_containers_per_card=1)
    assert "each of 2 GPUs has 1 container, which" in line(
        request(256), card(0, tenant()), card(1, tenant()), config=few
    )


def test_core_alone_gives_no_less_than_the_least_memory() -> None:
    assert "161 MiB and the least is 256 MiB" in line(request(core=1), card(0))
    assert "808 MiB and the least is 1024 MiB" in line(request(core=10, count=2), card(0), card(1))
