"""Whatever is asked in whatever order, no card is given away twice and the answer is always the same."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from native_sched.daemon.node.config import NodeConfig
from oci_specs.refusal import Refusal
from oci_specs.request import Memory, Request
from oci_specs.vocabulary import FIXED_SHARE, POLICIES
from placement.place import CardState, Placement, Tenant, place
from placement.rules import Strategy
from tests.cards import V100_MIB, card, given_mib


@st.composite
def any_request(draw: st.DrawFn) -> Request:
    kind = draw(st.sampled_from(["mib", "units", "core", "mib+core", "units+core", "whole"]))
    count = draw(st.integers(1, 3))
    memory = None
    if kind.startswith("mib"):
        memory = Memory(mib=draw(st.integers(1024, 20000)) * count)
    elif kind.startswith("units"):
        memory = Memory(units=draw(st.integers(1, 18)) * count)
    return Request(
        qos=draw(st.sampled_from(["online", "offline"])),
        policy=draw(st.sampled_from([None, None, *POLICIES])),
        count=count,
        candidates=draw(st.sampled_from([(), (), ("0", "1", "2")])),
        memory=memory,
        core_percent=draw(st.integers(1, 100)) * count if "core" in kind else None,
        whole_cards=kind == "whole",
    )


def assert_holds(cards: list[CardState], config: NodeConfig) -> None:
    for one in cards:
        assert one.free_mib >= 0
        assert len(one.tenants) <= config.max_containers_per_card
        for qos in ("online", "offline"):
            tenants = [tenant for tenant in one.tenants if tenant.qos == qos]
            core = sum(tenant.core_percent or 0 for tenant in tenants)
            assert core <= 100
            if one.policy == FIXED_SHARE:
                assert 100 - core >= sum(tenant.core_percent is None for tenant in tenants)


def place_or_refuse(asked: Request, cards: list[CardState], config: NodeConfig) -> Placement | Refusal:
    try:
        return place(asked, cards, config)
    except Refusal as refusal:
        return refusal


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.sampled_from([900, V100_MIB, 24576, 81920]), min_size=1, max_size=5),
    st.lists(any_request(), max_size=40),
    st.sampled_from(["default", "binpack", "spread", "separate"]),
    st.integers(1, 16),
)
def test_placement_never_oversubscribes_and_is_deterministic(
    sizes: list[int], requests: list[Request], placement: Strategy, most: int
) -> None:
    config = NodeConfig(placement=placement, max_containers_per_card=most)
    cards = [card(index, memory_mib=size) for index, size in enumerate(sizes)]
    for number, asked in enumerate(requests):
        chosen = place_or_refuse(asked, cards, config)
        if isinstance(chosen, Refusal):
            assert chosen.line().isprintable()
            continue
        assert place(asked, cards[::-1], config) == chosen
        assert asked.count == len({share.index for share in chosen.cards})
        assert asked.policy in (None, chosen.policy)
        if (
            asked.memory is not None
            and asked.memory.mib is not None
            and asked.core_percent != 100 * asked.count
        ):
            assert sum(given_mib(chosen)) == asked.memory.mib
        for share in chosen.cards:
            before = cards[share.index]
            assert before.policy in (None, chosen.policy)
            assert not (asked.whole_cards and before.tenants)
            cards[share.index] = replace(
                before,
                policy=chosen.policy,
                policy_owner=before.policy_owner or f"c{number}",
                tenants=(
                    *before.tenants,
                    Tenant(
                        container_id=f"c{number}",
                        qos=asked.qos,
                        memory_mib=share.memory_mib,
                        core_percent=share.core_percent,
                    ),
                ),
            )
        assert_holds(cards, config)
