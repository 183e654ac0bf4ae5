"""Admission of containers whose memory gives way, and of others on their cards."""

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from native_sched.daemon.control import report
from native_sched.daemon.engine import Engine
from native_sched.daemon.engine_abi import Usage
from native_sched.daemon.grants import memory_kind, refusals
from native_sched.daemon.grants import record as grant_record
from native_sched.daemon.grants.closed import Closed
from native_sched.daemon.grants.grants import Reclaim, ReclaimState
from native_sched.daemon.node.config import NodeConfig
from oci_specs import parse
from oci_specs.refusal import Refusal
from oci_specs.request import Memory, Qos
from placement.cards import CardShare, CardState, Tenant
from placement.place import place
from tests.cards import CONFIG, V100_MIB, card, given_mib, line, request
from tests.unit.arbiter_support import CARDS, World

MIB = 1 << 20
LENDS = NodeConfig(offline_overcommit=True)
OFFLINE = {"mgpu.dev/qos": "offline", "mgpu.dev/memory-reclaimable": "true"}


def reclaimable(memory_mib: int) -> Tenant:
    return Tenant(container_id="r", qos="offline", memory_mib=memory_mib, reclaimable=True)


def online(memory_mib: int) -> Tenant:
    return Tenant(container_id="o", qos="online", memory_mib=memory_mib)


def lending(online_mib: int, *tenants: Tenant) -> CardState:
    return replace(card(0, *tenants), online_mib=online_mib)


@pytest.mark.parametrize(
    ("annotations", "said"),
    [
        (
            {"mgpu.dev/memory-mib": "512", "mgpu.dev/memory-reclaimable": "true"},
            'mgpu: mgpu.dev/memory-reclaimable "true" on an online container, whose memory never gives way; '
            "make the container offline, or leave it out",
        ),
        (
            {"mgpu.dev/gpus": "1", **OFFLINE},
            'mgpu: mgpu.dev/memory-reclaimable "true" without an amount of memory; '
            "ask for memory beside it, such as mgpu.dev/memory-mib",
        ),
        (
            {"mgpu.dev/memory-mib": "512", "mgpu.dev/memory-reclaimable": "yes"},
            'mgpu: mgpu.dev/memory-reclaimable is "yes"; allowed: true or false',
        ),
        (
            {"mgpu.dev/reclaimable-memory-mib": "512", "mgpu.dev/qos": "online"},
            'mgpu: mgpu.dev/reclaimable-memory-mib "512" (offline) and mgpu.dev/qos "online" (online) disagree; '
            "keep one of them, or let both name one class",
        ),
        (
            {"mgpu.dev/reclaimable-memory-mib": "512", "mgpu.dev/memory-reclaimable": "false"},
            'mgpu: mgpu.dev/reclaimable-memory-mib "512" (reclaimable) and mgpu.dev/memory-reclaimable "false" '
            "disagree; keep one of them, or let both say the same",
        ),
    ],
)
def test_refused_with_this_line(annotations: Mapping[str, str], said: str) -> None:
    with pytest.raises(Refusal) as raised:
        parse.request(annotations, {}, CONFIG)
    assert raised.value.line() == said


def test_is_lent_what_online_was_granted_and_does_not_use() -> None:
    asked = replace(request(6000, qos="offline"), reclaimable=True)
    assert given_mib(place(asked, [lending(8000, online(16000))], CONFIG)) == [6000]
    assert "the most that is free is 5160 MiB" in line(asked, lending(11000, online(16000)))


def test_card_that_is_one_containers_alone_is_not_lent() -> None:
    asked = replace(request(6000, qos="offline"), reclaimable=True)
    alone = replace(online(V100_MIB), whole=True)
    assert "the most that is free is 0 MiB" in line(asked, lending(0, alone))


def test_no_card_is_promised_that_there_is_not() -> None:
    asked = replace(request(V100_MIB + 1, qos="offline"), reclaimable=True)
    assert line(asked, card(0)) == (
        "mgpu: 16161 MiB asked, but the largest GPU has 16160 MiB; ask for less, or for more GPUs"
    )


def test_online_is_admitted_as_if_reclaimable_memory_were_not_there() -> None:
    assert given_mib(place(request(V100_MIB), [card(0, reclaimable(V100_MIB))], CONFIG)) == [V100_MIB]


def test_other_offline_memory_is_not_granted_twice() -> None:
    asked = request(2000, qos="offline")
    assert "the most that is free is 1160 MiB" in line(asked, card(0, reclaimable(15000)))
    assert "the most that is free is 160 MiB" in line(asked, lending(0, online(16000)))
    assert given_mib(place(asked, [lending(0, online(10000), reclaimable(14000))], CONFIG)) == [2000]


kinds = st.tuples(
    st.sampled_from(["online", "kept", "reclaimable"]), st.integers(256, 12000), st.integers(0, 100)
)


@given(st.lists(kinds, max_size=20))
def test_no_order_of_arrivals_grants_more_than_there_is(arrivals: list[tuple[str, int, int]]) -> None:
    tenants: list[Tenant] = []
    used_mib = 0
    for kind, mib, used_percent in arrivals:
        qos: Qos = "online" if kind == "online" else "offline"
        asked = replace(request(mib, qos=qos), reclaimable=kind == "reclaimable")
        try:
            place(asked, [lending(used_mib, *tenants)], NodeConfig(max_containers_per_card=16))
        except Refusal:
            continue
        used_mib += mib * used_percent // 100 if kind == "online" else 0
        tenants.append(
            Tenant(
                container_id="t",
                qos=qos,
                memory_mib=mib,
                reclaimable=kind == "reclaimable",
            )
        )
        assert sum(one.memory_mib for one in tenants if not one.reclaimable) <= V100_MIB
        if kind != "online":
            assert used_mib + sum(one.memory_mib for one in tenants if one.qos == "offline") <= V100_MIB


def admitted(config: NodeConfig, driver_version: str = "580.95.05") -> World:
    world = World(config)
    world.admission._driver_version = driver_version
    return world


def test_without_overcommit_the_memory_is_the_containers_own() -> None:
    world = admitted(NodeConfig())
    grant = world.admission.admit(
        {
            "container_id": "c",
            "rootfs": "/r",
            "env": {},
            "reach": [],
            "annotations": {"mgpu.dev/memory-mib": "512", **OFFLINE},
        }
    )
    assert grant is not None
    assert not grant.reclaimable
    world.close()


def test_older_driver_and_mig_are_refused_in_a_line() -> None:
    share = CardShare(index=0, minor=0, uuid="GPU-0", name="A100", memory_mib=512, core_percent=None)
    with pytest.raises(Refusal) as raised:
        refusals.refuse_unevictable("550.163.01", [share], CARDS)
    assert raised.value.line() == (
        "mgpu: mgpu.dev/memory-reclaimable asked, but driver 550.163.01 does not move processes off a GPU; "
        "install driver 570 or newer, or do without"
    )
    with pytest.raises(Refusal) as raised:
        refusals.refuse_unevictable("570.1", [share], [replace(CARDS[0], instance=(1, 0))])
    assert raised.value.line() == (
        "mgpu: mgpu.dev/memory-reclaimable asked, but GPU 0 is a MIG instance, which no process is moved off; "
        "name a GPU without MIG, or do without"
    )
    refusals.refuse_unevictable("570.1", [share], CARDS)


def test_reclaimable_container_does_not_become_online_and_is_written_down() -> None:
    world = World(LENDS)
    grant = world.granted()
    grant.qos, grant.reclaimable = "offline", True
    grant.reclaim = Reclaim(state=ReclaimState.EVICTED, processes=((7, 8),), bytes={0: 9}, since_ns=3)
    with pytest.raises(Refusal, match="gives way to online containers, so it cannot become one"):
        world.ask("set", container=grant.container_id, **{"class": "online"})
    with pytest.raises(Refusal, match="is evicted: its memory does not change meanwhile"):
        world.ask("set", container=grant.container_id, memory_mib=2048)
    assert grant_record.from_json(grant_record.to_json(grant)) == grant
    world.close()


def test_changed_share_leaves_the_room_of_one_that_is_put_back() -> None:
    world = World(LENDS)
    grant = world.granted("c", MGPU_MEMORY_MIB="512", MGPU_QOS="offline")
    grant.reclaimable, grant.reclaim = (
        True,
        Reclaim(state=ReclaimState.EVICTING, processes=((7, 8),), bytes={0: 9}),
    )
    world.engine.memory_told.clear()
    world.ask("set", container=grant.container_id, core_percent=50)
    assert world.engine.memory_told == []
    world.close()


def test_next_mgpud_tells_the_engine_where_a_container_is() -> None:
    world = World(NodeConfig())
    engine, grant = world.engine, world.granted()
    memory_kind.tell(cast(Engine, engine), NodeConfig(), grant)
    assert engine.memory_told == [], "a node that lends nothing"
    grant.reclaimable, grant.reclaim = True, Reclaim(state=ReclaimState.RESTORING, bytes={0: 5})
    memory_kind.tell(cast(Engine, engine), NodeConfig(), grant)
    room = [(grant.tenant, True, {0: size}) for size in (5, 5 + memory_kind.STAGING_BYTES)]
    assert engine.memory_told == [(grant.tenant, 3), *room]
    world.close()


def test_memory_in_use_is_not_lent(monkeypatch: pytest.MonkeyPatch) -> None:
    world = admitted(LENDS)
    grant = world.granted("online", MGPU_MEMORY_MIB="16000")
    monkeypatch.setattr(world.engine, "usage", lambda tenant, card: Usage(used_bytes=15 * 1024 * MIB))
    [state] = [each for each in world.served.card_states([grant]) if each.index == grant.cards[0].index]
    assert state.free_for("offline", reclaimable=True) == 16160 - 15 * 1024
    assert state.free_for("offline", reclaimable=False) == 160
    for driver_version, lending in (
        ("580.95.05", {"online_mib": 15 * 1024, "kept_mib": 0, "lent_mib": 0}),
        ("550.163.01", None),
    ):
        told = report.inventory(world.served, Closed(), driver_version)["cards"]
        assert [each["lending"] for each in told if each["index"] == grant.cards[0].index] == [lending]
    world.close()


def test_amount_that_gives_way_says_all_of_it() -> None:
    found = parse.request({"mgpu.dev/reclaimable-memory-mib": "512"}, {}, CONFIG)
    assert found is not None
    assert (found.qos, found.reclaimable, found.memory) == ("offline", True, Memory(mib=512))
