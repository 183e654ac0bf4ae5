"""`policy` and `timeline`: whose word a card's policy is, and what the scheduler did."""

from typing import Any

import pytest

from native_sched.daemon.engine_abi import ALL_CARDS, EventKind, SchedEvent, Why
from oci_specs.refusal import Refusal
from oci_specs.vocabulary import FIXED_SHARE, GUARANTEED_BURST_SHARE
from tests.unit.arbiter_support import World

ON_0 = {"NVIDIA_VISIBLE_DEVICES": "0", "MGPU_MEMORY_MIB": "1024"}


def owners(world: World) -> list[tuple[str, str, list[str]]]:
    return [(row["policy"], row["owner"], row["tenants"]) for row in world.ask("policy")["cards"]]


def line(world: World, **members: Any) -> str:
    before = owners(world), dict(world.engine.policies)
    with pytest.raises(Refusal) as refused:
        world.ask("policy", **members)
    assert (owners(world), dict(world.engine.policies)) == before
    return refused.value.line()


def test_operator_policy_wins_over_containers_and_nodes(world: World) -> None:
    assert owners(world) == [("fixed-share", "node", [])] * 2
    grant = world.granted("a", **ON_0, MGPU_POLICY="be")
    world.granted("b", **ON_0)
    free: tuple[str, str, list[str]] = ("fixed-share", "node", [])
    assert owners(world) == [("native-burst-share", "a", ["a", "b"]), free]
    world.ask("policy", cards=[0], policy="guaranteed-burst-share")
    assert owners(world) == [("guaranteed-burst-share", "operator", ["a", "b"]), free]
    assert world.engine.policies == {0: GUARANTEED_BURST_SHARE}
    assert {row["policy"] for row in world.ask("list")["containers"]} == {"guaranteed-burst-share"}
    world.life.release(grant)
    assert owners(world)[0] == ("guaranteed-burst-share", "operator", ["b"])


def test_free_card_keeps_the_operators_policy(world: World) -> None:
    world.ask("policy", policy="native-burst-share")
    assert owners(world) == [("native-burst-share", "operator", [])] * 2
    assert world.granted("a", **ON_0).policy == "native-burst-share"
    with pytest.raises(Refusal) as refused:
        world.granted("b", **ON_0, MGPU_POLICY="fs")
    assert refused.value.line() == (
        "mgpu: policy fixed-share asked, but GPU 0 runs native-burst-share, set by the operator; "
        "ask for native-burst-share, leave the policy out, or have the operator set another with mgpu policy"
    )


def test_conflict_names_the_container_that_set_the_policy(world: World) -> None:
    world.granted("first", **ON_0, MGPU_POLICY="be")
    with pytest.raises(Refusal) as refused:
        world.granted("second", **ON_0, MGPU_POLICY="fs")
    assert refused.value.line() == (
        'mgpu: policy fixed-share asked, but GPU 0 runs native-burst-share, set by "first"; '
        "ask for native-burst-share, leave the policy out, or wait until that container ends"
    )


def test_cards_that_one_container_runs_on_are_set_together(world: World) -> None:
    world.granted("pair", MGPU_MEMORY_MIB="4096", MGPU_GPUS="2")
    assert line(world, cards=[1], policy="native-burst-share") == (
        "mgpu: container pair runs on GPUs 0 and 1 as one, under one policy; "
        "set all of them: --gpu 0 --gpu 1"
    )
    world.ask("policy", cards=[1, 0, 1], policy="native-burst-share")
    assert {row[0] for row in owners(world)} == {"native-burst-share"}


def test_under_fixed_share_everyone_is_left_something(world: World) -> None:
    world.ask("policy", cards=[0], policy="guaranteed-burst-share")
    world.granted("all", **ON_0, MGPU_CORE="100")
    world.granted("rest", **ON_0)
    assert line(world, cards=[0], policy="fixed-share") == (
        "mgpu: under fixed-share online container rest would get less than 1 percent of GPU 0, "
        "of which quotas leave 0 percent; "
        "lower another's with mgpu set --core, or give this one a quota first"
    )
    world.ask("set", container=world_id(world, "all"), core_percent=99)
    world.ask("policy", cards=[0], policy="fixed-share")


def world_id(world: World, container: str) -> str:
    return next(grant.id for grant in world.grants if grant.container_id == container)


def test_cards_whose_policy_the_scheduler_does_not_take_are_as_before(world: World) -> None:
    world.granted("pair", MGPU_MEMORY_MIB="4096", MGPU_GPUS="2")
    world.engine.refuses.add("policy 1")
    assert line(world, policy="native-burst-share") == (
        "mgpu: the scheduler does not take native-burst-share for these GPUs now (Device or resource busy); "
        "wait until their containers end; everything is as before"
    )
    assert {grant.policy for grant in world.grants} == {"fixed-share"}
    assert world.engine.policies == {0: FIXED_SHARE, 1: FIXED_SHARE}


def test_card_that_is_not_there(world: World) -> None:
    assert line(world, cards=[0, 7], policy="fixed-share") == (
        "mgpu: this node has no GPU 7; its GPUs are: 0, 1"
    )
    assert line(world, cards=[7]) == "mgpu: this node has no GPU 7; its GPUs are: 0, 1"
    assert [row["index"] for row in world.ask("policy", cards=[1])["cards"]] == [1]


def test_timeline_says_events_in_words(world: World) -> None:
    world.engine.log = [
        SchedEvent(at_ns=5, since_ns=4, tenant=3, kind=EventKind.IDLE, card=1, why=Why.NONE),
        SchedEvent(at_ns=9, tenant=3, kind=EventKind.SUSPENDED, card=ALL_CARDS, why=Why.PREEMPTED),
    ]
    reply = world.ask("timeline", since=0)
    assert reply["events"] == [
        [5, 4, "g-3", "idle", 1, "none"],
        [9, 0, "g-3", "suspended", None, "preempted"],
    ]
    assert (reply["next"], reply["lost"]) == (2, 0)
    assert world.ask("timeline", since=2)["events"] == []


def test_list_and_health_tell_of_the_scheduler(world: World) -> None:
    world.granted("a", **ON_0)
    assert world.ask("list")["containers"][0]["sched"] == {
        "enabled": True,
        "busy": True,
        "throttled": False,
        "why": "none",
        "run_ns": 7,
        "suspended_ns": 0,
        "video_ns": 0,
        "preemptions": 0,
        "quota_percent": 100,
    }
    health = world.ask("health")
    assert (health["sched_fifo"], health["hold_ms"], health["poll_fast_us"]) == (False, 100, 500)
