"""What the engine's scheduler is told as containers come, change and go."""

from contextlib import closing, suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from native_sched.daemon.engine_abi import TenantClass
from native_sched.daemon.grants.grants import Grant
from native_sched.daemon.node.config import NodeConfig
from oci_specs.refusal import Refusal
from oci_specs.vocabulary import FIXED_SHARE, GUARANTEED_BURST_SHARE
from tests.unit.arbiter_support import CARDS, World

ONLINE, OFFLINE = TenantClass.ONLINE, TenantClass.OFFLINE


def told(world: World) -> list[tuple[TenantClass, int]]:
    return [world.engine.scheduled[tenant] for tenant in sorted(world.engine.scheduled)]


def test_class_quota_and_policy_of_the_first_container(world: World) -> None:
    world.granted("a", MGPU_MEMORY_MIB="1024", MGPU_CORE="30", MGPU_QOS="offline", MGPU_POLICY="bs")
    assert told(world) == [(OFFLINE, 30)]
    assert world.engine.policies == {0: GUARANTEED_BURST_SHARE}


def test_whole_card_is_a_quota_of_100(world: World) -> None:
    world.granted("a", MGPU_GPUS="2")
    assert told(world) == [(ONLINE, 100)]
    assert world.engine.policies == {0: FIXED_SHARE, 1: FIXED_SHARE}


def test_core_total_is_split_over_the_cards(world: World) -> None:
    world.granted("a", MGPU_GPUS="2", MGPU_CORE="80", MGPU_MEMORY_MIB="4096")
    assert told(world) == [(ONLINE, 40)]


def test_shares_without_quota_follow_arrivals_and_ends(world: World) -> None:
    one_card = {"MGPU_MEMORY_MIB": "1024", "NVIDIA_VISIBLE_DEVICES": "0"}
    world.granted("a", **one_card)
    assert told(world) == [(ONLINE, 100)]
    second = world.granted("b", **one_card, MGPU_CORE="50")
    world.granted("c", **one_card)
    world.granted("d", **one_card, MGPU_QOS="offline")
    assert told(world) == [(ONLINE, 25), (ONLINE, 50), (ONLINE, 25), (OFFLINE, 100)]
    world.life.release(second)
    assert told(world) == [(ONLINE, 50), (ONLINE, 50), (OFFLINE, 100)]


def test_draining_container_keeps_its_share_until_it_ends(world: World) -> None:
    world.granted("a", MGPU_MEMORY_MIB="1024", NVIDIA_VISIBLE_DEVICES="0")
    leaving = world.granted("b", MGPU_MEMORY_MIB="1024", NVIDIA_VISIBLE_DEVICES="0")
    world.engine.busy.add(leaving.tenant)
    world.life.release(leaving)
    assert told(world) == [(ONLINE, 50), (ONLINE, 50)]
    world.engine.busy.clear()
    world.life.something_ended()
    assert told(world) == [(ONLINE, 100)]


def test_native_burst_share_heeds_no_quota(world: World) -> None:
    one_card = {"MGPU_MEMORY_MIB": "1024", "NVIDIA_VISIBLE_DEVICES": "0"}
    world.granted("a", **one_card, MGPU_CORE="70", MGPU_POLICY="be")
    world.granted("b", **one_card)
    assert told(world) == [(ONLINE, 50), (ONLINE, 50)]
    world.ask("policy", policy="fixed-share")
    assert told(world) == [(ONLINE, 70), (ONLINE, 30)]


def test_free_card_takes_the_policy_of_its_next_container(world: World) -> None:
    world.life.release(world.granted("a", MGPU_MEMORY_MIB="1024", MGPU_POLICY="be"))
    world.granted("b", MGPU_MEMORY_MIB="1024")
    assert world.engine.policies == {0: FIXED_SHARE}


def test_container_without_a_card_is_not_scheduled() -> None:
    world = World(NodeConfig(allow_privileged=True))
    grant = world.admit("a", reach=[{"how": "cgroup", "detail": "device rule a *:* rwm"}])
    assert grant is not None
    assert world.engine.scheduled == {}
    assert world.ask("list")["containers"][0]["sched"] is None
    world.close()


def test_grant_fails_when_the_scheduler_refuses_it(world: World) -> None:
    grant = world.unregistered()
    world.engine.refuses.add("schedule")
    with pytest.raises(Refusal, match="the scheduler does not take container c"):
        world.life.begin(grant, 1, 60)
    assert (len(world.grants), world.engine.tenants) == (0, {})
    world.engine.refuses.clear()
    world.granted("a")
    assert told(world) == [(ONLINE, 100)]


steps = st.one_of(
    st.tuples(
        st.just("come"),
        st.fixed_dictionaries(
            {"MGPU_MEMORY_MIB": st.sampled_from(["1024", "2048"]), "MGPU_GPUS": st.sampled_from("12")},
            optional={
                "MGPU_CORE": st.sampled_from(["2", "40", "60"]),
                "MGPU_QOS": st.just("offline"),
                "MGPU_POLICY": st.sampled_from("12"),
            },
        ),
    ),
    st.tuples(st.just("go"), st.integers(0, 9)),
    st.tuples(
        st.just("set"),
        st.fixed_dictionaries(
            {"container": st.integers(0, 9)},
            optional={
                "class": st.sampled_from(["online", "offline"]),
                "core_percent": st.integers(1, 220),
                "memory_mib": st.integers(200, 40000),
            },
        ).filter(lambda members: len(members) > 1),
    ),
    st.tuples(
        st.just("policy"),
        st.fixed_dictionaries(
            {"policy": st.sampled_from(["fixed-share", "guaranteed-burst-share", "native-burst-share"])},
            optional={"cards": st.lists(st.integers(0, 2), min_size=1, max_size=2)},
        ),
    ),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(steps, max_size=30))
def test_engine_always_has_the_grants_policies(script: list[tuple[str, object]]) -> None:
    with closing(World(NodeConfig())) as world:
        living: list[Grant] = []
        for number, (step, details) in enumerate(script):
            with suppress(Refusal):
                if step == "come":
                    assert isinstance(details, dict)
                    living.append(world.granted(f"c{number}-{'x' * number}", **details))
                elif step == "go":
                    assert isinstance(details, int)
                    if living:
                        world.life.release(living.pop(details % len(living)))
                elif step == "set" and living:
                    assert isinstance(details, dict)
                    grant = living[details["container"] % len(living)]
                    world.ask("set", **{**details, "container": grant.id})
                elif step == "policy":
                    assert isinstance(details, dict)
                    world.ask("policy", **details)
            agrees(world)


def agrees(world: World) -> None:
    """What the engine was told is what the grants say, and they fit the cards."""
    engine = world.engine
    assert engine.tenants == {
        grant.tenant: {card.index: card.memory_mib << 20 for card in grant.cards} for grant in world.grants
    }
    assert set(engine.scheduled) == {grant.tenant for grant in world.grants}
    for card in CARDS:
        here = [(grant, own) for grant in world.grants for own in grant.cards if own.index == card.index]
        assert sum(own.memory_mib for _, own in here) <= card.memory_mib
        assert len({grant.policy for grant, _ in here}) <= 1
        for wanted, qos in ((ONLINE, "online"), (OFFLINE, "offline")):
            mine = [(grant, own) for grant, own in here if grant.qos == qos]
            assert all(engine.scheduled[grant.tenant][0] == wanted for grant, _ in mine)
            quotas = sum(own.core_percent or 0 for _, own in mine)
            without = sum(own.core_percent is None for _, own in mine)
            assert quotas <= 100
            assert sum(engine.scheduled[grant.tenant][1] for grant, _ in mine) <= 100
            for grant, own in mine:
                assert grant.policy is not None
                assert engine.policies[card.index] == grant.policy
                if grant.policy == "fixed-share" and own.core_percent is None:
                    assert quotas + without <= 100, (
                        "someone without a quota is left nothing of a fixed share"
                    )
