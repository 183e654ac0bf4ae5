"""A real container under a prepared claim, variable and annotations as kubelet and the engine write them."""

import json
from collections.abc import Iterator

import pytest

from oci_specs.claim import Claim, ClaimedCard, ClaimedRequest, Pod
from oci_specs.refusal import Refusal
from tests.support import arbiter
from tests.support.arbiter import Arbiter
from tests.support.bundle import bundle
from tests.support.lasting import lasting_mgpu
from tests.support.steady import killed

POD = Pod(name="train-0", uid="0d9f2a4c-1f60-4f8e-8a5e-2f1f0f7f3a10")
OF_THE_POD = {
    "io.kubernetes.cri.container-type": "container",
    "io.kubernetes.cri.container-name": "main",
    "io.kubernetes.cri.sandbox-name": POD.name,
    "io.kubernetes.cri.sandbox-namespace": "team-a",
    "io.kubernetes.cri.sandbox-uid": POD.uid,
}
NVML = """
import json, pynvml
pynvml.nvmlInit()
cards = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
totals = [pynvml.nvmlDeviceGetMemoryInfo(card).total >> 20 for card in cards]
print(json.dumps([list(map(pynvml.nvmlDeviceGetUUID, cards)), totals]))
"""


lasting, _ = lasting_mgpu()


@pytest.fixture
def mgpu(lasting: Arbiter) -> Iterator[Arbiter]:
    yield lasting
    arbiter.until_empty(lasting)
    for each in lasting.ask("claims")["claims"]:
        lasting.ask("claims", unprepare=each["uid"])


def prepared(mgpu: Arbiter, *memory_mib: int) -> Claim:
    """A claim with so much of each card."""
    uuids = [row["uuid"] for row in mgpu.listing()["cards"]]
    cards = tuple(
        ClaimedCard(uuid=uuid, memory_mib=mib) for uuid, mib in zip(uuids, memory_mib, strict=False)
    )
    request = ClaimedRequest(name="gpu", cards=cards)
    claim = Claim(uid="7d3a", namespace="team-a", name="half", pods=(POD,), requests=(request,))
    mgpu.ask("claims", prepare=claim.to_json())
    return claim


def test_container_sees_what_its_claim_has(mgpu: Arbiter) -> None:
    claim = prepared(mgpu, 4096, 1000)
    uuids = [row["uuid"] for row in mgpu.listing()["cards"]]
    with bundle("python3", "-c", NVML, annotations=OF_THE_POD, env=dict([claim.variable(0)])) as made:
        done = made.run(mgpu.runtime)
    assert done.status == 0, done.err
    assert json.loads(done.out) == [uuids, [4096, 1000]]


@pytest.mark.parametrize(
    ("annotations", "uid"),
    [
        ({**OF_THE_POD, "io.kubernetes.cri.sandbox-name": "thief"}, "7d3a"),
        ({**OF_THE_POD, "io.kubernetes.cri.sandbox-namespace": "team-b"}, "7d3a"),
        ({}, "7d3a"),
        (OF_THE_POD, "7d3b"),
    ],
)
def test_forged_variable_gets_nothing(mgpu: Arbiter, annotations: dict[str, str], uid: str) -> None:
    prepared(mgpu, 4096)
    env = {"MGPU_CLAIM_7D3A_0": f"team-a/half/{uid}/gpu"}
    with bundle("true", annotations=annotations, env=env) as made:
        done = made.run(mgpu.runtime)
    assert done.status != 0
    assert f'mgpu: the container names the claim "team-a/half/{uid}/gpu", and' in done.err
    assert mgpu.containers() == []


def test_claim_outlives_mgpud_and_is_kept_while_a_container_runs(mgpu: Arbiter) -> None:
    claim = prepared(mgpu, 4096)
    with bundle(
        "sh", "-c", "echo up; read line", annotations=OF_THE_POD, env=dict([claim.variable(0)])
    ) as made:
        with made.running(mgpu.runtime) as running:
            assert running.line() == "up"
            killed(mgpu, "mgpud")
            assert mgpu.ask("claims")["claims"] == [claim.to_json()]
            assert "Claim:" in mgpu.mgpu("describe", "train-0")
            with pytest.raises(
                Refusal, match="claim team-a/half cannot be unprepared: container train-0/main"
            ):
                mgpu.ask("claims", unprepare=claim.uid)
            running.tell()
            assert running.end() == 0
        arbiter.until_empty(mgpu)
        assert mgpu.ask("claims", unprepare=claim.uid)["claims"] == []
