"""Prepared claims: who gets what by them, and what becomes of them in the next mgpud."""

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from native_sched.daemon.grants import record
from native_sched.daemon.grants.claims import Claims
from native_sched.daemon.grants.grants import Grant
from native_sched.daemon.node import record_file
from native_sched.daemon.node.config import NodeConfig
from oci_specs import schemas, vocabulary
from oci_specs.claim import Claim, ClaimedCard, ClaimedRequest, Pod
from oci_specs.refusal import Refusal
from tests.unit.arbiter_support import CARDS, World

UID = "5d0f6ad6-9a65-4a0e-9a3d-6e8f1f3c7b11"
POD = Pod(name="web-0", uid="11111111-2222-3333-4444-555555555555")
# As containerd's CRI writes them.
OF_THE_POD = {
    "io.kubernetes.cri.container-type": "container",
    "io.kubernetes.cri.container-name": "main",
    "io.kubernetes.cri.sandbox-name": POD.name,
    "io.kubernetes.cri.sandbox-namespace": "team-a",
    "io.kubernetes.cri.sandbox-uid": POD.uid,
}


def card(index: int, memory_mib: int | None = 4096, core_percent: int | None = None) -> ClaimedCard:
    return ClaimedCard(uuid=f"GPU-{index}", memory_mib=memory_mib, core_percent=core_percent)


def claim(*cards: ClaimedCard, uid: str = UID, name: str = "shared", **members: Any) -> Claim:
    request = ClaimedRequest(name="gpu", cards=cards or (card(0),), **members)
    return Claim(uid=uid, namespace="team-a", name=name, pods=(POD,), requests=(request,))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(NodeConfig(), tmp_path)
    yield made
    made.close()


def prepare(world: World, *claims: Claim) -> None:
    for each in claims:
        world.ask("claims", prepare=each.to_json())


def admit(
    world: World,
    *claims: Claim,
    container: str = "c1",
    annotations: dict[str, str] = OF_THE_POD,
    **env: str,
) -> Grant:
    message = {
        "container_id": container,
        "rootfs": "/r",
        "annotations": annotations,
        "env": {**dict(each.variable(0) for each in claims), **env},
        "reach": [],
    }
    grant = world.admission.admit(message)
    assert grant is not None
    world.life.begin(grant, os.getpid(), 60)
    return grant


def refused(world: World, *claims: Claim, **options: Any) -> Refusal:
    tenants = dict(world.engine.tenants)
    with pytest.raises(Refusal) as raised:
        admit(world, *claims, **options)
    assert "\n" not in raised.value.line()
    assert world.engine.tenants == tenants
    return raised.value


def given(grant: Grant) -> list[tuple[int, int, int | None]]:
    return [(each.index, each.memory_mib, each.core_percent) for each in grant.cards]


def test_container_gets_what_its_claim_has(world: World) -> None:
    one = claim(card(1, 4309, 30), qos="offline", policy="guaranteed-burst-share")
    prepare(world, one)
    # An image of CUDA's brings the variable by itself.
    grant = admit(world, one, NVIDIA_VISIBLE_DEVICES="all")
    assert given(grant) == [(1, 4309, 30)]
    assert (grant.qos, grant.policy, grant.whole_cards) == ("offline", "guaranteed-burst-share", False)
    assert grant.claims == (f"team-a/shared/{UID}/gpu",)
    assert world.engine.tenants == {grant.tenant: {1: 4309 << 20}}


def test_claim_without_amounts_is_a_card_for_itself(world: World) -> None:
    one = claim(card(0, None))
    prepare(world, one)
    grant = admit(world, one)
    assert given(grant) == [(0, CARDS[0].memory_mib, 100)]
    assert grant.whole_cards
    with pytest.raises(Refusal, match="2 GPUs asked, but"):
        world.granted("other", MGPU_GPUS="2", MGPU_MEMORY_MIB="2048")


def test_cards_may_have_different_amounts(world: World) -> None:
    one = claim(card(1, 8192, 50), card(0, 1024))
    prepare(world, one)
    assert given(admit(world, one)) == [(0, 1024, None), (1, 8192, 50)]


def test_two_claims_on_one_card_add_up(world: World) -> None:
    first, second = claim(card(0, 1024, 20)), claim(card(0, 2048, 30), uid="another-uid", name="more")
    prepare(world, first, second)
    grant = admit(world, first, second)
    assert given(grant) == [(0, 3072, 50)]
    assert grant.claims == (f"team-a/shared/{UID}/gpu", "team-a/more/another-uid/gpu")
    [row] = world.ask("list")["containers"]
    assert row["claims"] == list(grant.claims)


def test_containers_that_share_a_request_have_equal_parts_and_no_more_of_them(world: World) -> None:
    one = claim(card(0, 8193, 50), containers=2)
    prepare(world, one)
    assert given(admit(world, one, container="c1")) == [(0, 4096, 25)]
    second = admit(world, one, container="c2")
    assert given(second) == [(0, 4096, 25)]
    assert refused(world, one, container="c3").code == "claim-shared-out"
    world.life.release(second)
    assert given(admit(world, one, container="c3")) == [(0, 4096, 25)]


@pytest.mark.parametrize(
    ("annotations", "why"),
    [
        ({**OF_THE_POD, "io.kubernetes.cri.sandbox-name": "other"}, "is not reserved"),
        ({**OF_THE_POD, "io.kubernetes.cri.sandbox-namespace": "team-b"}, "is not reserved"),
        ({**OF_THE_POD, "io.kubernetes.cri.sandbox-uid": "0"}, "is not reserved"),
        ({}, "is not reserved"),
        # A pod on CRI-O that brings what containerd writes.
        ({**OF_THE_POD, "io.kubernetes.pod.name": "other"}, "is not reserved"),
    ],
)
def test_another_pods_container_gets_nothing(world: World, annotations: dict[str, str], why: str) -> None:
    one = claim()
    prepare(world, one)
    refusal = refused(world, one, annotations=annotations)
    assert refusal.code == "no-claim"
    assert why in refusal.message


@pytest.mark.parametrize(
    "value",
    [
        f"team-a/shared/{UID}/other",
        f"team-b/shared/{UID}/gpu",
        f"team-a/shared/{UID}/gpu/x",
        f"team-a/other/{UID}/gpu",
        "team-a/shared//gpu",
        "",
        "/" * 999,
        "\x00\n",
    ],
)
def test_variable_that_names_no_prepared_claim_is_refused(world: World, value: str) -> None:
    prepare(world, claim())
    assert refused(world, MGPU_CLAIM_X=value).code == "no-claim"


def test_forged_variable_spoils_a_right_one(world: World) -> None:
    one = claim()
    prepare(world, one)
    assert refused(world, one, MGPU_CLAIM_X=f"team-b/more/{UID}/gpu").code == "no-claim"


def test_claim_and_annotations_at_once_are_refused(world: World) -> None:
    one = claim()
    prepare(world, one)
    annotations = {**OF_THE_POD, "mgpu.dev/memory-mib": "512"}
    assert refused(world, one, annotations=annotations).code == "claim-and-keys"


def test_variable_beside_a_claim_asks_for_nothing(world: World) -> None:
    one = claim(card(1, 4309))
    prepare(world, one)
    assert given(admit(world, one, MGPU_MEMORY_MIB="512", MGPU_CORE="100")) == [(1, 4309, None)]


def test_claims_of_two_classes_are_refused_together(world: World) -> None:
    online, offline = claim(), claim(card(1), uid="u2", name="second", qos="offline")
    prepare(world, online, offline)
    assert refused(world, online, offline).code == "claims-disagree"


def test_more_than_the_card_has_is_refused(world: World) -> None:
    world.granted("other", MGPU_GPUS="GPU-0", MGPU_MEMORY_MIB="14000")
    one = claim(card(0, 4096))
    prepare(world, one)
    assert refused(world, one).code == "memory-full"


def test_part_below_the_least_is_refused(world: World) -> None:
    one = claim(card(0, 511), containers=2)
    prepare(world, one)
    assert refused(world, one).code == "claim-too-small"


def test_variable_of_a_service_is_none_of_a_claim() -> None:
    env = {"MGPU_CLAIM_A_SERVICE_HOST": "10.0.0.1", "MGPU_CLAIM_PORT_443_TCP": "tcp://10.0.0.1:443"}
    assert not vocabulary.names_gpu({}, env)
    assert vocabulary.claims_named(env) == []
    assert vocabulary.names_gpu({}, {"MGPU_CLAIM_5D_0": "a/b/c/d"})


def test_prepared_claims_are_told_and_preparing_is_idempotent(world: World) -> None:
    one = claim()
    prepare(world, one, one)
    assert world.ask("claims")["claims"] == [one.to_json()]
    assert world.ask("claims", unprepare=UID)["claims"] == []
    assert world.ask("claims", unprepare=UID)["claims"] == []
    assert refused(world, one).code == "no-claim"


def test_claim_in_use_is_neither_forgotten_nor_changed(world: World) -> None:
    one = claim()
    prepare(world, one)
    grant = admit(world, one)
    world.engine.busy.add(grant.tenant)
    for _ in range(2):
        with pytest.raises(Refusal, match="still holds"):
            world.ask("claims", unprepare=UID)
        with pytest.raises(Refusal, match="still holds"):
            prepare(world, claim(card(1)))
        # The container has ended, and something of it is left in the driver.
        world.life.release(grant)
    assert world.ask("claims")["claims"] == [one.to_json()]
    world.engine.busy.clear()
    world.life.something_ended()
    assert world.ask("claims", unprepare=UID)["claims"] == []


def test_pod_more_may_use_a_claim_in_use(world: World) -> None:
    one = claim(containers=2)
    prepare(world, one)
    admit(world, one)
    later = Pod(name="web-1", uid="22222222-2222-3333-4444-555555555555")
    theirs = {
        **OF_THE_POD,
        "io.kubernetes.cri.sandbox-name": "web-1",
        "io.kubernetes.cri.sandbox-uid": later.uid,
    }
    assert refused(world, one, container="c2", annotations=theirs).code == "no-claim"
    prepare(world, replace(one, pods=(POD, later)))
    admit(world, one, container="c2", annotations=theirs)


def test_next_mgpud_knows_claims_and_who_holds_them(world: World, tmp_path: Path) -> None:
    one = claim()
    prepare(world, one)
    grant = admit(world, one)
    document = record.to_json(grant)
    schemas.validate("grant_record", json.loads((tmp_path / "grants" / f"{grant.nonce}.json").read_text()))
    again = record.from_json(document)
    assert again.claims == grant.claims
    following = Claims(str(tmp_path / "claims"), [again])
    assert list(following) == [one]
    with pytest.raises(Refusal, match="still holds"):
        following.unprepare(UID)


def test_grant_of_a_mgpud_before_there_were_claims_is_read(world: World) -> None:
    document = record.to_json(world.granted())
    del document["claims"]
    assert record.from_json(document).claims == ()


def test_document_of_another_boot_is_forgotten(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(world, claim())
    (tmp_path / "claims" / "half.json.new").write_text("{")
    (tmp_path / "claims" / "broken.json").write_text("{}")
    assert [each.uid for each in Claims(str(tmp_path / "claims"), [])] == [UID]
    assert os.listdir(tmp_path / "claims") == [f"{UID}.json"]
    monkeypatch.setattr(record_file, "boot_id", lambda: "another")
    assert list(Claims(str(tmp_path / "claims"), [])) == []
    assert os.listdir(tmp_path / "claims") == []


def test_claim_that_cannot_be_written_down_is_not_prepared(world: World, tmp_path: Path) -> None:
    (tmp_path / "claims" / f"{UID}.json.new").mkdir()
    with pytest.raises(Refusal, match="cannot write down claim team-a/shared"):
        prepare(world, claim())
    assert world.ask("claims")["claims"] == []
